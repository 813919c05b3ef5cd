// An instruction being issued: checks its operands against the rules, then lends their bytes.
#pragma once
#include "gm.h"

// Reports where `holds` does not; builds the message only then.
#define EMULATOR_REQUIRE(op, holds, ...)      \
  do {                                    \
    if (!(holds)) (op).fail(__VA_ARGS__); \
  } while (false)

namespace emulator {

inline std::string num(uint64_t value) { return std::to_string(value); }

// A report from outside an instruction.
[[noreturn]] inline void fail_here(Core& core, Kind kind, const char* op, const Site& site,
                                   const std::string& what, const std::string& remedy) {
  throw EmulatorError(kind, core.index, core.launch->kernel, op, site_text(site), what, remedy);
}

inline Core& require_core(const char* op) {
  if (current_core() != nullptr) return *current_core();
  throw EmulatorError(Kind::kAssertion, -1, "(no kernel)", op, "", "called outside a launch",
                  "call kernels through emulator::Kernel::run");
}

// What a LocalTensor refers to, whatever its type.
struct UbRef {
  int32_t buffer = -1;
  uint32_t generation = 0;
  uint32_t offset = 0;  // in the unified buffer
  uint32_t bytes = 0;
};

// Where a GlobalTensor came from.
struct GmRef {
  uint64_t origin = 0;  // what SetGlobalBuffer was given
  uint64_t limit = 0;   // the end by the size it was given; 0: none
};

class Op {
 public:
  Op(const char* name, int pipe, const Site& site)
      : core(require_core(name)), pipe_(pipe), name_(name), site_(site) {
    ++core.seq[pipe];
    ++core.instructions[pipe];
  }

  [[noreturn]] void fail(Kind kind, const std::string& what, const std::string& remedy) const {
    throw EmulatorError(kind, core.index, core.launch->kernel, name_, site_text(site_), what, remedy);
  }

  // Bytes [from, from + bytes) of a tensor, as operand `role`.
  const uint8_t* read(const UbRef& ref, uint64_t from, uint64_t bytes, const char* role,
                      uint32_t align = kBlockBytes) const {
    const uint32_t at = locate(ref, from, bytes, role, align);
    if (core.launch->options.checks && bytes != 0) {
      check_value(at, bytes, role);
      order_ub(at, bytes, role, false);
    }
    return core.ub.data() + at;
  }
  uint8_t* write(const UbRef& ref, uint64_t from, uint64_t bytes, const char* role,
                 uint32_t align = kBlockBytes) const {
    const uint32_t at = locate(ref, from, bytes, role, align);
    if (core.launch->options.checks && bytes != 0) {
      order_ub(at, bytes, role, true);
      std::memset(core.ub_init.data() + at, 1, bytes);
    }
    return core.ub.data() + at;
  }

  // Marks what a copy left undefined around its data as unwritten.
  void forget(const UbRef& ref, uint64_t from, uint64_t left, uint64_t data, uint64_t whole) const {
    if (!core.launch->options.checks) return;
    uint8_t* init = core.ub_init.data() + ref.offset + from;
    std::memset(init, 0, left);
    std::memset(init + left + data, 0, whole - left - data);
  }

  // Bytes of global memory. `cached`: through the scalar unit's data cache.
  void read_gm(const GmRef& ref, const void* pointer, uint64_t bytes, const char* role,
               bool cached = false) const {
    core.gm_read[pipe_] += bytes;
    touch_gm(ref, pointer, bytes, role, false, cached);
  }
  void write_gm(const GmRef& ref, const void* pointer, uint64_t bytes, const char* role,
                bool cached = false) const {
    core.gm_write[pipe_] += bytes;
    touch_gm(ref, pointer, bytes, role, true, cached);
  }

  Core& core;

 private:
  uint32_t locate(const UbRef& ref, uint64_t from, uint64_t bytes, const char* role,
                  uint32_t align) const;
  void check_value(uint32_t at, uint64_t bytes, const char* role) const;
  void order_ub(uint32_t at, uint64_t bytes, const char* role, bool write) const;
  [[noreturn]] void fail_unordered(uint64_t block, const char* role, bool write, int other,
                                   bool other_wrote) const;
  void touch_gm(const GmRef& ref, const void* pointer, uint64_t bytes, const char* role, bool write,
                bool cached) const;
  Region& locate_gm(const GmRef& ref, uint64_t from, uint64_t to, const char* role,
                    bool write) const;
  void order_gm(Region& region, uint64_t from, uint64_t to, const char* role, bool write) const;
  void check_writers(const LineWrites& writes, uint64_t mine, const std::string& what, bool write,
                     bool cached) const;
  void check_copy(const Region& region, uint64_t line, uint64_t from, uint64_t to,
                  const std::string& what, bool write) const;
  void check_lines(Region& region, uint64_t from, uint64_t to, const char* role, bool write,
                   bool cached) const;
  std::string place(const UbRef& ref) const;

  int pipe_;
  const char* name_;
  Site site_;
};

inline std::string position_name(AscendC::TPosition position) {
  switch (position) {
    case AscendC::TPosition::VECIN:
      return "VECIN";
    case AscendC::TPosition::VECOUT:
      return "VECOUT";
    case AscendC::TPosition::VECCALC:
      return "VECCALC";
    default:
      return "another";
  }
}

inline std::string Op::place(const UbRef& ref) const {
  const Buffer& buffer = core.buffers[ref.buffer];
  return position_name(buffer.position) + (buffer.in_queue ? " queue" : "") + " buffer of " +
         num(buffer.bytes) + " bytes at " + num(buffer.begin);
}

inline uint32_t Op::locate(const UbRef& ref, uint64_t from, uint64_t bytes, const char* role,
                           uint32_t align) const {
  EMULATOR_REQUIRE(*this, ref.buffer >= 0, Kind::kUbBounds,
               std::string(role) + " is a tensor without memory",
               "take it from a TQue or a TBuf that InitBuffer has filled");
  const Buffer& buffer = core.buffers[ref.buffer];
  if (buffer.generation != ref.generation || buffer.hold != Hold::kHeld) {
    const bool queued = buffer.generation == ref.generation && buffer.hold == Hold::kQueued;
    fail(Kind::kUseAfterFree,
         std::string(role) + " is used " +
             (queued ? "while it waits in its queue" : "after FreeTensor") + " (" + place(ref) +
             ")",
         queued ? "use what DeQue returns" : "free it after its last use");
  }
  EMULATOR_REQUIRE(*this, bytes == 0 || (ref.offset + from) % align == 0, Kind::kAlignment,
               std::string(role) + " starts at byte " + num(ref.offset + from) +
                   " of the unified buffer, not a multiple of " + num(align),
               "start operands at multiples of " + num(align) + " bytes");
  if (from + bytes > ref.bytes) {
    fail(Kind::kUbBounds,
         std::string(role) + " needs " + num(from + bytes) + " bytes, " +
             num(from + bytes - ref.bytes) + " more than its tensor has (" + num(ref.bytes) + "; " +
             place(ref) + ")",
         "allocate more in InitBuffer or process less");
  }
  return ref.offset + static_cast<uint32_t>(from);
}

inline void Op::check_value(uint32_t at, uint64_t bytes, const char* role) const {
  const void* hole = std::memchr(core.ub_init.data() + at, 0, bytes);
  if (hole == nullptr) return;
  const uint64_t byte = static_cast<const uint8_t*>(hole) - core.ub_init.data();
  fail(Kind::kUninitialised,
       std::string(role) + " covers bytes " + num(at) + " to " + num(at + bytes) +
           " of the unified buffer; byte " + num(byte) + " was never written",
       "write it first (Duplicate, DataCopyPad) or process fewer elements");
}

inline void Op::fail_unordered(uint64_t block, const char* role, bool write, int other,
                               bool other_wrote) const {
  const std::string mine = pipe_name(pipe_), others = pipe_name(other);
  fail(Kind::kUnordered,
       std::string(role) + ": pipe " + mine + (write ? " overwrites" : " reads") + " byte " +
           num(block * kBlockBytes) + " of the unified buffer, which pipe " + others +
           " may still be " + (other_wrote ? "writing" : "reading"),
       other == pipe_
           ? "PipeBarrier<PIPE_" + mine + ">"
           : "SetFlag and WaitFlag of HardEvent::" + others + "_" + mine + ", or a queue");
}

inline void Op::order_ub(uint32_t at, uint64_t bytes, const char* role, bool write) const {
  const uint64_t now = core.seq[pipe_];
  for (uint64_t block = at / kBlockBytes; block <= (at + bytes - 1) / kBlockBytes; ++block) {
    BlockShadow& shadow = core.shadow[block];
    const bool by_this = shadow.write_pipe == pipe_ && shadow.write_seq == now;
    if (shadow.write_pipe >= 0 && !by_this &&
        !core.ordered(pipe_, shadow.write_pipe, shadow.write_seq, true)) {
      fail_unordered(block, role, write, shadow.write_pipe, true);
    }
    if (!write) {
      shadow.read_seq[pipe_] = now;
      continue;
    }
    for (int q = 0; q < kPipes; ++q) {
      if (q != pipe_ && !core.ordered(pipe_, q, shadow.read_seq[q], false)) {
        fail_unordered(block, role, write, q, false);
      }
    }
    shadow.write_pipe = pipe_;
    shadow.write_seq = now;
    shadow.read_seq.fill(0);
  }
}

}  // namespace emulator
