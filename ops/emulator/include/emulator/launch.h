// The host's side: register global tensors, run a kernel on all its blocks, read the counts.
//
//   emulator::Kernel kernel("verify_greedy", *options);
//   kernel.input("logits", logits, rows * pitch * 4).rows(vocab * 4, pitch * 4);
//   kernel.output("tokens", tokens, n * 4);
//   return kernel.run(num_blocks, [&] { verify_greedy(...); }, stats, error);
#pragma once
#include <sys/mman.h>
#include <ucontext.h>

#include "../kernel_operator.h"

namespace emulator {

// One block of a launch: a fiber, so that blocks can wait for each other on one thread.
struct Fiber {
  static constexpr size_t kStackBytes = 1 << 20;
  enum class State { kReady, kWaiting, kDone };

  Fiber()
      : stack(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                   0)) {
    mprotect(stack, 4096, PROT_NONE);  // its end: too deep a call stops there
  }
  ~Fiber() { munmap(stack, kStackBytes); }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void* stack;
  ucontext_t context{};
  State state = State::kReady;
};

struct Cancelled {};  // unwinds the blocks that are left after a failure

class Kernel {
 public:
  class Tensor {
   public:
    explicit Tensor(Region& region) : region_(&region) {}
    // Rows of `row_bytes`, each `pitch_bytes` after the one before; the gap between is off limits.
    Tensor& rows(uint64_t row_bytes, uint64_t pitch_bytes) {
      const bool gaps = pitch_bytes > row_bytes;
      region_->row_bytes = gaps ? row_bytes : 0;
      region_->row_pitch = gaps ? pitch_bytes : 0;
      return *this;
    }

   private:
    Region* region_;
  };

  Kernel(const std::string& name, const emulator_options& options) : launch_(name, options) {}

  Tensor input(const std::string& name, const void* p, uint64_t bytes) {
    return Tensor(launch_.add(name, p, bytes, Access::kInput));
  }
  // Read and written; has a value before the launch.
  Tensor inout(const std::string& name, void* p, uint64_t bytes) {
    return Tensor(launch_.add(name, p, bytes, Access::kInOut));
  }
  // Every byte must be written; none may be read before.
  Tensor output(const std::string& name, void* p, uint64_t bytes) {
    return Tensor(launch_.add(name, p, bytes, Access::kOutput));
  }
  // As an output, but need not be written.
  Tensor workspace(const std::string& name, void* p, uint64_t bytes) {
    return Tensor(launch_.add(name, p, bytes, Access::kWorkspace));
  }

  // Runs `body` once for each block. Returns emulator_error::kind; 0 if no rule was broken.
  template <typename Body>
  int run(int num_blocks, Body body, emulator_stats* stats, emulator_error* error) {
    try {
      run_or_throw(num_blocks, body);
    } catch (const EmulatorError& broken) {
      if (error != nullptr) *error = broken.record();
      return broken.record().kind;
    }
    if (stats != nullptr) *stats = count();
    return 0;
  }

  template <typename Body>
  emulator_stats run_or_throw(int num_blocks, Body body) {
    if (num_blocks < 1 || num_blocks > EMULATOR_MAX_CORES) {
      throw EmulatorError(Kind::kArgument, -1, launch_.kernel, "launch", "",
                      std::to_string(num_blocks) + " blocks", "1 to 64");
    }
    launch_.num_blocks = num_blocks;
    launch_.wait_for_all = [this] { wait(); };
    body_ = body;
    for (int i = 0; i < num_blocks; ++i) {
      launch_.cores.push_back(std::make_unique<Core>(&launch_, i));
      fibers_.push_back(std::make_unique<Fiber>());
      start(*fibers_.back());
    }
    Core* outer = current_core();
    schedule();
    current_core() = outer;
    if (failure_) throw *failure_;
    if (launch_.options.checks) check_outputs();
    return count();
  }

 private:
  void start(Fiber& fiber) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = Fiber::kStackBytes;
    fiber.context.uc_link = &main_;
    const auto self = reinterpret_cast<uint64_t>(this);
    makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Kernel::enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  }

  static void enter(unsigned high, unsigned low) {
    auto* self = reinterpret_cast<Kernel*>(static_cast<uint64_t>(high) << 32 | low);
    self->run_block();
  }

  void run_block() {
    Core& core = *current_core();
    try {
      body_();
      if (launch_.options.checks) check_end(core);
    } catch (const EmulatorError& broken) {
      if (!failure_) failure_ = std::make_unique<EmulatorError>(broken);
      launch_.cancelled = true;
    } catch (const Cancelled&) {
    }
    fibers_[core.index]->state = Fiber::State::kDone;
  }

  void schedule() {
    while (true) {
      bool ran = false;
      for (size_t i = 0; i < fibers_.size(); ++i) {
        if (fibers_[i]->state != Fiber::State::kReady) continue;
        current_core() = launch_.cores[i].get();
        swapcontext(&main_, &fibers_[i]->context);
        ran = true;
        if (launch_.cancelled) release();
      }
      if (ran) continue;
      if (!meet()) return;
    }
  }

  // Called when every block waits or is done. Lets those that wait go on; false if none waits.
  bool meet() {
    int waiting = 0, done = -1;
    for (size_t i = 0; i < fibers_.size(); ++i) {
      if (fibers_[i]->state == Fiber::State::kWaiting) ++waiting;
      if (fibers_[i]->state == Fiber::State::kDone) done = static_cast<int>(i);
    }
    if (waiting == 0) return false;
    if (done >= 0 && !launch_.cancelled) {
      failure_ = std::make_unique<EmulatorError>(
          Kind::kSyncAll, done, launch_.kernel, "SyncAll", "",
          "core " + std::to_string(done) + " has ended while " + std::to_string(waiting) +
              " cores wait in SyncAll; the device waits for ever",
          "let every core call SyncAll equally often");
      launch_.cancelled = true;
    }
    ++launch_.sync_alls;
    release();
    return true;
  }

  void release() {
    for (auto& fiber : fibers_) {
      if (fiber->state == Fiber::State::kWaiting) fiber->state = Fiber::State::kReady;
    }
  }

  void wait() {
    Core& core = *current_core();
    Fiber& fiber = *fibers_[core.index];
    fiber.state = Fiber::State::kWaiting;
    swapcontext(&fiber.context, &main_);
    if (launch_.cancelled) throw Cancelled{};
  }

  void check_end(Core& core) const {
    auto fail = [&](Kind kind, const char* op, const std::string& what, const std::string& remedy) {
      fail_here(core, kind, op, Site{}, what, remedy);
    };
    for (const Buffer& buffer : core.buffers) {
      if (buffer.in_queue && buffer.hold != Hold::kFree) {
        fail(Kind::kQueueLeak, "end of kernel",
             "a tensor of a " + position_name(buffer.position) + " queue was never freed",
             "FreeTensor");
      }
    }
    for (int e = 0; e < kEvents; ++e) {
      for (int id = 0; id < kEventIds; ++id) {
        if (core.flags[e][id].set) {
          fail(Kind::kFlag, "end of kernel",
               "event " + event_name(e) + " " + std::to_string(id) + ", set by " +
                   core.flags[e][id].site + ", was never waited for",
               "WaitFlag");
        }
      }
      if (core.ids_leased[e] != 0) {
        fail(Kind::kFlag, "end of kernel",
             "an event id of " + event_name(e) + " was never released", "ReleaseEventID");
      }
    }
    for (const auto& line : launch_.lines) {
      if (line.second.core == core.index && line.second.dirty != 0) {
        fail(Kind::kCacheDirty, "end of kernel",
             "what SetValue wrote to global memory may still be in the data cache",
             "DataCacheCleanAndInvalid after SetValue");
      }
    }
  }

  void check_outputs() const {
    for (const auto& region : launch_.regions) {
      if (region->access != Access::kOutput) continue;
      for (uint64_t i = 0; i < region->bytes; ++i) {
        const bool in_gap = region->row_pitch != 0 && i % region->row_pitch >= region->row_bytes;
        if (region->init[i] != 0 || in_gap) continue;
        throw EmulatorError(Kind::kNotWritten, -1, launch_.kernel, "end of kernel", "",
                        "byte " + num(i) + " of output '" + region->name + "' (" +
                            num(region->bytes) + " bytes) was never written",
                        "write all of it, with padding where there is nothing to say");
      }
    }
  }

  emulator_stats count() const {
    emulator_stats stats{};
    stats.num_cores = launch_.cores.size();
    stats.sync_alls = launch_.sync_alls;
    for (const auto& core : launch_.cores) {
      for (int p = 0; p < kPipes; ++p) {
        stats.gm_read_bytes[p] += core->gm_read[p];
        stats.gm_write_bytes[p] += core->gm_write[p];
        stats.instructions[p] += core->instructions[p];
        stats.core_instructions[core->index] += core->instructions[p];
        stats.core_gm_bytes[core->index] += core->gm_read[p] + core->gm_write[p];
      }
      stats.vector_bytes += core->vector_bytes;
      stats.scalar_gm_reads += core->scalar_reads;
      stats.scalar_gm_writes += core->scalar_writes;
      stats.peak_ub[core->index] = core->peak_ub;
    }
    return stats;
  }

  Launch launch_;
  std::function<void()> body_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::unique_ptr<EmulatorError> failure_;
  ucontext_t main_{};
};

}  // namespace emulator
