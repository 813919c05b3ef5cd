// What the emulator reports and counts: plain structs that cross a C boundary, and the exception
// inside.
#pragma once
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

extern "C" {

// One broken rule. `message` is complete; the other fields let a program sort reports.
struct emulator_error {
  int32_t kind;        // emulator::Kind
  int32_t core;        // block index, -1 if no core ran
  char kind_name[24];  // "unordered", "gm-bounds", ...
  char kernel[64];
  char op[64];     // "ReduceMax"
  char site[256];  // file:line of the call in the kernel
  char message[1024];
};

struct emulator_options {
  int32_t checks;            // 0: only the bounds that protect this process
  int32_t auto_sync;         // emulator::AutoSync
  int32_t nan_mode;          // emulator::NanMode
  int32_t strict_positions;  // 1: DataCopy only on the documented paths between TPositions
};

enum { EMULATOR_MAX_CORES = 64, EMULATOR_PIPES = 4 };

// Counts of one launch, over all cores. Pipes are indexed S, V, MTE2, MTE3.
struct emulator_stats {
  uint64_t gm_read_bytes[EMULATOR_PIPES];
  uint64_t gm_write_bytes[EMULATOR_PIPES];
  uint64_t instructions[EMULATOR_PIPES];
  uint64_t vector_bytes;  // bytes of source operands (of the destination where there is no source)
  uint64_t scalar_gm_reads;
  uint64_t scalar_gm_writes;
  uint64_t sync_alls;  // meetings of all cores
  uint64_t num_cores;
  uint64_t peak_ub[EMULATOR_MAX_CORES];            // bytes of the unified buffer, per core
  uint64_t core_instructions[EMULATOR_MAX_CORES];  // all pipes
  uint64_t core_gm_bytes[EMULATOR_MAX_CORES];      // read and written
};
}

namespace emulator {

enum class Kind : int32_t {
  kNone = 0,
  kUbOverflow,     // more unified buffer allocated than there is
  kUbBounds,       // access past the end of a local tensor
  kAlignment,      // address or size not in whole data blocks
  kGmBounds,       // access outside the registered global tensors
  kReadOnly,       // write to an input
  kQueueDepth,     // no free buffer, or more EnQue than the queue's depth
  kQueueOrder,     // DeQue from an empty queue, FreeTensor of something not held, ...
  kQueueLeak,      // a tensor never freed
  kUseAfterFree,   // a local tensor used while its buffer belongs to nobody, or to the queue
  kUninitialised,  // bytes read that nothing has written
  kUnordered,      // two pipes of a core touch the same data without an order between them
  kFlag,           // SetFlag and WaitFlag that do not match
  kCoreRace,       // two cores touch the same global bytes without SyncAll between
  kCacheDirty,     // scalar write to global memory not cleaned out of the data cache
  kCacheStale,     // scalar read of a line cached before somebody else wrote it
  kCacheShared,    // two writers of one 64-byte cache line, one of them through the cache
  kSyncAll,        // cores that do not meet
  kArgument,       // an argument outside the documented range
  kUnsupported,    // a mode that Atlas A2/A3 does not have
  kNotWritten,     // an output with bytes nothing has written
  kAssertion,      // ascendc_assert in the kernel
  kPosition,       // a copy between TPositions that is not documented (strict_positions)
};

inline const char* kind_name(Kind kind) {
  static const char* const names[] = {
      "none",        "ub-overflow", "ub-bounds",   "alignment",      "gm-bounds",     "read-only",
      "queue-depth", "queue-order", "queue-leak",  "use-after-free", "uninitialised", "unordered",
      "flag",        "core-race",   "cache-dirty", "cache-stale",    "cache-shared",  "sync-all",
      "argument",    "unsupported", "not-written", "assertion",      "position"};
  return names[static_cast<int>(kind)];
}

// Which orders the compiler is trusted to insert by itself (its option cce-auto-sync).
enum AutoSync {
  kAutoNone = 0,    // nothing: every dependency needs its flag or barrier
  kAutoVector = 1,  // between vector instructions; the default, and stricter than the compiler
  kAutoScalar = 2,  // also between the scalar unit and the other pipes, as cce-auto-sync=on does
};

// The documentation does not say what Max, Min and reductions make of a NaN: run under both.
enum NanMode { kNanPropagate = 0, kNanIgnore = 1 };

// Where in the kernel an instruction was called.
struct Site {
  const char* file = nullptr;
  int line = 0;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return Site{file, line};
  }
};

inline std::string site_text(const Site& site) {
  if (site.file == nullptr) return "";
  std::string file = site.file;
  const size_t slash = file.rfind('/');
  if (slash != std::string::npos) file = file.substr(slash + 1);
  return file + ":" + std::to_string(site.line);
}

inline void copy_text(char* to, size_t size, const std::string& text) {
  std::snprintf(to, size, "%s", text.c_str());
}

class EmulatorError : public std::exception {
 public:
  EmulatorError(Kind kind, int core, const std::string& kernel, const std::string& op,
            const std::string& site, const std::string& what, const std::string& remedy) {
    record_.kind = static_cast<int32_t>(kind);
    record_.core = core;
    copy_text(record_.kind_name, sizeof record_.kind_name, kind_name(kind));
    copy_text(record_.kernel, sizeof record_.kernel, kernel);
    copy_text(record_.op, sizeof record_.op, op);
    copy_text(record_.site, sizeof record_.site, site);
    std::string text = kernel + ", core " + std::to_string(core) + ", " + op;
    if (!site.empty()) text += " at " + site;
    text += ": " + what + ".";
    if (!remedy.empty()) text += " Remedy: " + remedy + ".";
    text += std::string(" [") + kind_name(kind) + "]";
    copy_text(record_.message, sizeof record_.message, text);
  }
  const char* what() const noexcept override { return record_.message; }
  const emulator_error& record() const { return record_; }

 private:
  emulator_error record_{};
};

}  // namespace emulator
