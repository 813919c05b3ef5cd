// Global memory: the registered tensors, who touched which bytes, and the launch they belong to.
#pragma once
#include <functional>
#include <memory>

#include "core.h"

namespace emulator {

enum class Access { kInput, kInOut, kOutput, kWorkspace };

// The last touch of some bytes by one pipe of one core.
struct Touch {
  int core = -1;
  int pipe = 0;
  uint64_t seq = 0;
  uint32_t epoch = 0;
  uint64_t time = 0;
};

// Neighbouring bytes with the same history; the key of the map is their first byte.
struct Segment {
  uint64_t end = 0;
  Touch write;
  std::vector<Touch> reads;  // the newest of each core and pipe in its last epoch
};

struct Region {
  std::string name;
  uint64_t begin = 0, bytes = 0;
  Access access = Access::kInput;
  uint64_t row_bytes = 0, row_pitch = 0;  // 0: no gaps
  std::vector<uint8_t> init;              // per byte; empty if everything is initialised
  std::map<uint64_t, Segment> history;    // of writable regions

  uint64_t end() const { return begin + bytes; }

  // Calls visit(segment) for all bytes of [from, to), cutting segments at the ends.
  template <typename F>
  void each(uint64_t from, uint64_t to, F visit) {
    cut(from);
    cut(to);
    uint64_t at = from;
    auto it = history.lower_bound(from);
    while (at < to) {
      if (it == history.end() || it->first > at) {
        const uint64_t gap_end = it == history.end() ? to : std::min(to, it->first);
        it = history.emplace_hint(it, at, Segment{gap_end, {}, {}});
      }
      visit(it->second);
      at = it->second.end;
      ++it;
    }
  }

  // Calls visit(segment) for the segments that meet [from, to), without changing them.
  template <typename F>
  void peek(uint64_t from, uint64_t to, F visit) const {
    auto it = history.upper_bound(from);
    if (it != history.begin()) --it;
    for (; it != history.end() && it->first < to; ++it) {
      if (it->second.end > from) visit(it->second);
    }
  }

 private:
  void cut(uint64_t at) {
    auto it = history.upper_bound(at);
    if (it == history.begin()) return;
    --it;
    if (it->first == at || it->second.end <= at) return;
    Segment tail = it->second;
    it->second.end = at;
    history.emplace(at, std::move(tail));
  }
};

// A cache line that scalar writes have changed: by which core, when, and which bytes are not yet
// cleaned out to memory.
struct LineWrites {
  int core = -1;
  uint32_t epoch = 0;
  uint64_t dirty = 0;  // bit per byte
};

class Launch {
 public:
  explicit Launch(std::string kernel_name, const emulator_options& launch_options)
      : kernel(std::move(kernel_name)), options(launch_options) {}

  Region& add(const std::string& name, const void* pointer, uint64_t bytes, Access access) {
    auto region = std::make_unique<Region>();
    region->name = name;
    region->begin = reinterpret_cast<uint64_t>(pointer);
    region->bytes = bytes;
    region->access = access;
    if (access == Access::kOutput || access == Access::kWorkspace) region->init.resize(bytes);
    regions.push_back(std::move(region));
    return *regions.back();
  }

  Region* find(uint64_t address) {
    for (auto& region : regions) {
      if (address >= region->begin && address < region->end()) return region.get();
    }
    return nullptr;
  }

  std::string kernel;
  emulator_options options;
  int num_blocks = 1;
  uint64_t time = 0;
  uint64_t sync_alls = 0;
  bool cancelled = false;
  std::vector<std::unique_ptr<Region>> regions;
  std::vector<std::unique_ptr<Core>> cores;
  std::unordered_map<uint64_t, LineWrites> lines;
  std::function<void()> wait_for_all;  // gives the processor to the other blocks until all meet
};

inline Core::Core(Launch* owner, int block_index)
    : launch(owner), index(block_index), ub(kUbBytes) {
  if (owner->options.checks) {
    ub_init.resize(kUbBytes);
    shadow.resize(kUbBytes / kBlockBytes);
    std::memset(ub.data(), 0xa5, ub.size());  // what a kernel reads unwritten should not look right
  }
  buffers.reserve(kMaxBuffers);
}

inline bool Core::ordered(int p, int q, uint64_t then, bool was_write) const {
  if (then == 0 || clock[p].at[q] >= then) return true;
  const int sync = launch->options.auto_sync;
  if (p == q) {
    if (p == PIPE_S) return true;
    if (p == PIPE_V) return sync >= kAutoVector || !was_write;
    return !was_write;
  }
  return sync >= kAutoScalar && (p == PIPE_S || q == PIPE_S);
}

}  // namespace emulator
