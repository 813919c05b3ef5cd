// Counts of what the device was asked to do. Cumulative; npu_sim/counters.py takes differences.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "api.h"

namespace npu_sim {

// What one launch of an op moves.
struct Traffic {
  int64_t read = 0;     // bytes
  int64_t written = 0;  // bytes
};

struct OpCount {
  int64_t launched = 0;  // by the host, one by one
  int64_t replayed = 0;  // as part of a graph
  int64_t captured = 0;  // put on a tape, not counted as launched
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
};

enum class Launch { kEager, kReplay, kCapture };

// Values are ACL's: host to host, host to device, device to host, device to device.
enum class CopyKind { kHostToHost = 0, kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3 };

struct Counters {
  std::map<std::string, OpCount> ops;
  std::map<std::string, int64_t> events;  // "replays", "sync:stream", "h2d:bytes", ...
};

SIM_API void count_op(const std::string& name, const Traffic& traffic, Launch launch);
SIM_API void count_event(const std::string& name, int64_t amount = 1);
SIM_API void count_copy(CopyKind kind, int64_t bytes);
SIM_API Counters counters();

}  // namespace npu_sim
