// One vector core: its unified buffer with a shadow, its four pipes' clocks, its flags and cache.
#pragma once
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <unordered_map>
#include <vector>

#include "report.h"
#include "types.h"

namespace emulator {

constexpr uint32_t kUbBytes = 192 * 1024;
constexpr uint32_t kBlockBytes = 32;  // a data block: the unit of alignment and of order
constexpr uint32_t kRepeatBytes = 256;
constexpr uint64_t kLineBytes = 64;  // of the data cache
constexpr int kPipes = EMULATOR_PIPES;
constexpr int kEvents = static_cast<int>(AscendC::HardEvent::MAX);
constexpr int kEventIds = 8;
constexpr int kMaxBuffers = 64;

inline const char* pipe_name(int pipe) {
  static const char* const names[] = {"S", "V", "MTE2", "MTE3"};
  return pipe >= 0 && pipe < kPipes ? names[pipe] : "?";
}

// What a pipe knows of every pipe's progress: instructions up to at[p] of pipe p have finished.
struct Clock {
  std::array<uint64_t, kPipes> at{};
  void join(const Clock& other) {
    for (int p = 0; p < kPipes; ++p) at[p] = std::max(at[p], other.at[p]);
  }
};

// Who touched a data block of the unified buffer last.
struct BlockShadow {
  int write_pipe = -1;
  uint64_t write_seq = 0;
  std::array<uint64_t, kPipes> read_seq{};
};

enum class Hold { kFree, kHeld, kQueued };

// A buffer that InitBuffer has cut out of the unified buffer.
struct Buffer {
  uint32_t begin = 0, bytes = 0;
  AscendC::TPosition position = AscendC::TPosition::VECCALC;
  bool in_queue = false;
  Hold hold = Hold::kFree;
  uint32_t generation = 0;  // counts the owners, to tell stale tensors
  Clock clock;              // of the pipe that gave the buffer on

  uint32_t end() const { return begin + bytes; }
};

struct Flag {
  bool set = false;
  Clock clock;
  std::string site;
};

class Launch;

struct Core {
  Core(Launch* owner, int block_index);

  Launch* launch;
  int index;
  uint32_t epoch = 0;  // SyncAlls passed

  std::vector<uint8_t> ub;
  std::vector<uint8_t> ub_init;  // per byte
  std::vector<BlockShadow> shadow;
  uint32_t ub_top = 0;
  uint32_t ub_reserved = 0;  // at the end, by instructions that need room of their own
  std::vector<Buffer> buffers;

  std::array<Clock, kPipes> clock;
  std::array<uint64_t, kPipes> seq{};
  std::array<std::array<Flag, kEventIds>, kEvents> flags;
  std::array<uint8_t, kEvents> ids_taken{};    // bit per event id: allocated, or held by a queue
  std::array<uint8_t, kEvents> ids_fetched{};  // ever handed out by FetchEventID
  std::array<uint8_t, kEvents> ids_leased{};   // by AllocEventID, to be released
  void* pipe = nullptr;                        // the TPipe in use
  bool may_sync_all = false;                   // kernel type set by KERNEL_TASK_TYPE_DEFAULT

  // Lines in the data cache, by address: when they were loaded (Launch::time).
  std::unordered_map<uint64_t, uint64_t> cached;

  std::array<uint64_t, kPipes> instructions{}, gm_read{}, gm_write{};
  uint64_t vector_bytes = 0, scalar_reads = 0, scalar_writes = 0;
  uint32_t peak_ub = 0;

  // The clock a pipe would pass on now: what it knows, and its own instructions so far.
  Clock snapshot(int p) const {
    Clock now = clock[p];
    now.at[p] = seq[p];
    return now;
  }
  void order(int from, int to) { clock[to].join(snapshot(from)); }
  void order_all() {
    for (auto& c : clock) c.at = seq;
  }
  // Whether instruction `then` of pipe q is over when pipe p runs its next one.
  bool ordered(int p, int q, uint64_t then, bool was_write) const;
};

inline Core*& current_core() {
  static thread_local Core* core = nullptr;
  return core;
}

}  // namespace emulator
