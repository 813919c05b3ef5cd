#include "counters.h"

#include <mutex>

namespace npu_sim {

static std::mutex mutex;
static Counters total;

void count_op(const std::string& name, const Traffic& traffic, Launch launch) {
  std::lock_guard<std::mutex> lock(mutex);
  OpCount& count = total.ops[name];
  if (launch == Launch::kCapture) {
    count.captured++;
    return;
  }
  (launch == Launch::kReplay ? count.replayed : count.launched)++;
  count.bytes_read += traffic.read;
  count.bytes_written += traffic.written;
}

void count_event(const std::string& name, int64_t amount) {
  std::lock_guard<std::mutex> lock(mutex);
  total.events[name] += amount;
}

void count_copy(CopyKind kind, int64_t bytes) {
  const char* name = kind == CopyKind::kHostToDevice   ? "h2d"
                     : kind == CopyKind::kDeviceToHost ? "d2h"
                                                       : nullptr;
  if (!name) return;
  count_event(std::string(name) + ":copies");
  count_event(std::string(name) + ":bytes", bytes);
}

Counters counters() {
  std::lock_guard<std::mutex> lock(mutex);
  return total;
}

}  // namespace npu_sim
