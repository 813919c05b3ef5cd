#include "progress.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <list>
#include <mutex>
#include <utility>
#include <vector>

#include "counters.h"
#include "stream.h"

namespace npu_sim {

namespace {

// What the host finds in pinned memory before it has waited: no number that a program would take
// for a valid one. 0x7f7f… is a large integer, a large float, and NaN in float16.
constexpr int kPoison = 0x7f;

struct UnderWay {
  HostCopy copy;
  int32_t stream;
  uint64_t task;      // of that stream
  std::string bytes;  // those to deliver, or those that must still be there
};

std::mutex mutex;  // guards all below, and the clocks of the streams
auto& under_way = *new std::list<UnderWay>;

auto& tolerated = *new std::vector<std::pair<std::string, std::string>>;

// A place is a line or a function, in a file named by its end: "file:12" or "file:function".
bool is_tolerated(const HostCopy& copy) {
  for (const auto& [file_end, place] : tolerated)
    for (size_t at = 0; (at = copy.where.find(file_end + ":", at)) != std::string::npos; at++) {
      const std::string frame = copy.where.substr(at, copy.where.find(", from ", at) - at);
      const size_t line = file_end.size() + 1, function = frame.rfind(" in ");
      if (frame.substr(line, function - line) == place || frame.substr(function + 4) == place)
        return true;
    }
  return false;
}

bool includes(const Clock& done, const UnderWay& copy) {
  const auto known = done.find(copy.stream);
  return known != done.end() && known->second >= copy.task;
}

bool overlaps(const HostCopy& copy, const void* memory, size_t bytes) {
  const auto* begin = static_cast<const char*>(copy.memory);
  const auto* other = static_cast<const char*>(memory);
  return begin < other + bytes && other < begin + copy.bytes;
}

Clock reached_now(const Stream* stream) {
  Clock clock = stream->knows;
  clock[stream->id] = stream->tasks;
  return clock;
}

// End the copies that `done` holds for, in the order of their launch.
AclError finish(const std::function<bool(const UnderWay&)>& done) {
  std::list<UnderWay> ended;  // released without the lock: their owners may be Python's
  std::string overwritten;
  {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto next = under_way.begin(); next != under_way.end();) {
      const auto current = next++;
      if (!done(*current)) continue;
      const HostCopy& copy = current->copy;
      if (copy.to_host)
        memcpy(copy.memory, current->bytes.data(), copy.bytes);
      else if (memcmp(copy.memory, current->bytes.data(), copy.bytes) && overwritten.empty() &&
               !is_tolerated(copy))
        overwritten = "pinned memory was overwritten before the host had waited for the copy of it "
                      "to the device (" + std::to_string(copy.bytes) + " bytes, launched on stream " +
                      std::to_string(current->stream) +
                      (copy.where.empty() ? "" : " at " + copy.where) + ")";
      ended.splice(ended.end(), under_way, current);
    }
  }
  return overwritten.empty() ? kOk : fail(kOverwritten, overwritten);
}

// Copies to the device that `done` includes have read what is overwritten now. The rest of their
// memory still has to stay as it is, and so has all of it if it has been changed already.
void forget_part(const Clock& done, const HostCopy& by) {
  std::list<UnderWay> ended, rests;  // released without the lock
  std::lock_guard<std::mutex> lock(mutex);
  auto* const begin = static_cast<char*>(by.memory);
  for (auto next = under_way.begin(); next != under_way.end();) {
    const auto current = next++;
    const HostCopy& copy = current->copy;
    if (copy.to_host || !overlaps(copy, by.memory, by.bytes) || !includes(done, *current) ||
        memcmp(copy.memory, current->bytes.data(), copy.bytes))
      continue;
    auto* const first = static_cast<char*>(copy.memory);
    const auto rest = [&](char* from, char* to) {
      if (from >= to) return;
      rests.push_back(*current);
      rests.back().copy.memory = from;
      rests.back().copy.bytes = to - from;
      rests.back().bytes = current->bytes.substr(from - first, to - from);
    };
    rest(first, begin);
    rest(begin + by.bytes, first + copy.bytes);
    ended.splice(ended.end(), under_way, current);
  }
  under_way.splice(under_way.end(), rests);
}

bool late_copies() {
  static const bool late = environment("NPU_SIM_LATE_COPIES", 1);
  return late;
}

}  // namespace

void advance(Stream* stream) {
  std::lock_guard<std::mutex> lock(mutex);
  stream->tasks++;
}

Clock reached(const Stream* stream) {
  std::lock_guard<std::mutex> lock(mutex);
  return reached_now(stream);
}

void learn(Stream* stream, const Clock& done) {
  std::lock_guard<std::mutex> lock(mutex);
  for (const auto& [id, tasks] : done) {
    uint64_t& known = stream->knows[id];
    known = std::max(known, tasks);
  }
}

bool covers(const Stream* stream, const Stream* other) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto known = stream->knows.find(other->id);
  return known != stream->knows.end() && known->second >= other->tasks;
}

void before_copying(const Stream* stream, const HostCopy& copy) {
  const Clock clock = reached(stream);
  if (copy.to_host) return forget_part(clock, copy);
  finish([&](const UnderWay& earlier) {
    return earlier.copy.to_host && overlaps(earlier.copy, copy.memory, copy.bytes) &&
           includes(clock, earlier);
  });
}

void set_off(const Stream* stream, const HostCopy& copy) {
  if (!copy.bytes || !late_copies()) return;
  std::lock_guard<std::mutex> lock(mutex);
  under_way.push_back({copy, stream->id, stream->tasks,
                       std::string(static_cast<const char*>(copy.memory), copy.bytes)});
  if (copy.to_host) memset(copy.memory, kPoison, copy.bytes);
}

void tolerate(const std::string& file_end, const std::string& place) {
  std::lock_guard<std::mutex> lock(mutex);
  tolerated.emplace_back(file_end, place);
}

AclError host_learns(const Stream* stream) { return host_learns(reached(stream)); }

AclError host_learns(const Clock& done) {
  return finish([&](const UnderWay& copy) { return includes(done, copy); });
}

AclError host_learns_all() {
  return finish([](const UnderWay&) { return true; });
}

void forget(const void* memory, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  under_way.remove_if([&](const UnderWay& copy) { return overlaps(copy.copy, memory, bytes); });
}

}  // namespace npu_sim
