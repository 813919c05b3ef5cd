// Graphs. Capturing writes tasks on a tape, replaying runs them in the order of the capture.
//
// A task may wait for an external event, which torch_npu makes of a number in device memory that
// one stream waits for and another writes. vllm-ascend launches a replay first and records the
// events afterwards, from another stream, when it has updated the attention's arguments: so a
// replay stops at such a task, its stream is blocked, and whatever is recorded resumes it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api.h"
#include "counters.h"
#include "progress.h"

namespace npu_sim {

struct Capture;
struct Event;
struct Stream;

struct Task {
  std::string name;  // empty: not an op, not counted
  std::function<void()> run;
  Traffic traffic;
  CopyKind copies = CopyKind::kHostToHost;  // for copies between host and device,
  int64_t copied = 0;                       // and how many bytes
  std::optional<HostCopy> host_copy;        // of these, one that the host does not wait for
  std::function<bool()> ready;  // do not start before this holds; empty: it need not wait
};

// A group of tasks whose arguments may be replaced later.
struct TaskGroup {
  std::vector<std::shared_ptr<Task>> tasks;
};

struct Tape {
  uint32_t id = 0;
  std::vector<std::shared_ptr<Task>> tasks;
  std::vector<std::shared_ptr<TaskGroup>> groups;
  Capture* open = nullptr;  // the capture that writes on it
};

enum class Mode {
  kEager,    // run it now
  kCapture,  // put it on the tape
  kUpdate,   // replace a task of a group, do not run it
};

// The mode of the calling thread.
SIM_API Mode mode();

// Put a task on the tape that the calling thread captures.
SIM_API void record(Task task);

// Run a task on a stream now and count it.
SIM_API void perform(const Task& task, Launch launch, Stream* stream);

// The stream of the task that the calling thread runs.
Stream* performing();

// A stream that waits for an event recorded in a capture takes part in it.
void join(Stream* stream, const Event* event);

// Let a new task take the place of the next one of the group that the calling thread updates.
// The error says which op was expected.
SIM_API void replace(Task task);

// Keep the bytes that a captured op is about to change. A captured op does run, because those
// after it need tensors of the right shape, but a capture leaves no trace: at its end what was
// kept is put back.
SIM_API void keep(void* begin, size_t bytes);

// Say that the host waits for the device, and count it. An error while the calling thread captures,
// because a graph cannot contain it, and while `stream` (or any, if null) is blocked, because nobody
// is left who could end it.
SIM_API AclError host_waits(const char* why, Stream* stream = nullptr);

// The same for an event, which may have happened while a stream is blocked.
AclError host_waits_for(const Event* event);

// Launch an op on the stream: an error while a replay on it is stopped, and on a stream that takes no
// part in what the calling thread captures.
SIM_API AclError may_launch(Stream* stream, const std::string& name);

// Run a task of the runtime itself on a stream, or record it. One that changes memory (`bytes` at
// `changes`) also runs when it is captured.
AclError submit(Stream* stream, Task task, void* changes = nullptr, size_t bytes = 0);

// Go on with what waits and need not wait any longer. What torch_npu's thread for its task queue
// ends is gone on with by the next thread of the program that asks for anything: replays run Python,
// and whoever fills that queue waits for it.
void resume();

// The calling thread is one of the program's; do for it what `resume` has left.
void resume_here();

}  // namespace npu_sim
