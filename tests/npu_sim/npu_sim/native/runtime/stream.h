// Streams and events. Streams run what they are given at once, in the order of the program.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "api.h"
#include "progress.h"
#include "tape.h"

namespace npu_sim {

// A replay that has begun: the tape and the next task on it.
struct Replay {
  std::shared_ptr<Tape> tape;
  size_t next = 0;
};

struct Stream {
  int32_t id = 0;
  std::shared_ptr<Tape> capture;  // what is captured on it
  std::deque<Replay> backlog;     // the first one waits for something; empty: not blocked
  bool running = false;           // runs its backlog
  uint64_t tasks = 0;             // launched so far
  Clock knows;                    // of the other streams, what it has waited for
};

// The stream behind a handle; CANN's default stream is null.
Stream* stream_of(void* handle);

struct Event {
  double recorded_at = 0;  // milliseconds
  bool recorded = false;
  bool external = false;          // may be waited for before it is recorded
  std::shared_ptr<Tape> capture;  // the capture in which it was recorded last
  Clock done;                     // what is done once it has happened
  std::weak_ptr<void> pending;    // of its last record outside of a capture, until that has run
};

}  // namespace npu_sim
