#include "tape.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "stream.h"

namespace npu_sim {

namespace {

// Bytes that were there before the capture changed them.
struct Kept {
  char* begin;
  std::string bytes;
};

}  // namespace

// What a thread captures.
struct Capture {
  std::shared_ptr<Tape> tape;
  std::vector<Stream*> streams;         // those that take part; the first is where it began
  std::shared_ptr<TaskGroup> group;     // open task group, or null
  std::vector<Kept> kept;
  std::map<void*, size_t> kept_sizes;
};

namespace {

// Which group a thread updates, and how far it got.
struct Update {
  std::shared_ptr<TaskGroup> group;
  size_t next = 0;
};

thread_local std::unique_ptr<Capture> capture;
thread_local std::unique_ptr<Update> update;
thread_local Stream* performing_stream = nullptr;
thread_local bool is_of_program = false;  // not torch_npu's own for its task queue
thread_local bool resumes = false;
std::atomic<bool> left_to_resume{false};
std::mutex resuming;

std::mutex mutex;  // guards what several threads may reach: streams with a backlog, all tapes
std::vector<Stream*> blocked;
// By the handle that torch_npu holds. Never destroyed: tasks hold Python objects, and the interpreter
// is gone when static objects are destroyed.
auto& tapes = *new std::map<void*, std::shared_ptr<Tape>>;
auto& task_groups = *new std::map<void*, std::shared_ptr<TaskGroup>>;

void put_back(Capture& ended) {
  for (auto kept = ended.kept.rbegin(); kept != ended.kept.rend(); ++kept)
    memcpy(kept->begin, kept->bytes.data(), kept->bytes.size());
}

// Run a tape on a stream from where it stopped. False: it waits for an event (again).
bool run(Replay& replay, Stream* stream) {
  while (replay.next < replay.tape->tasks.size()) {
    const std::shared_ptr<Task> task = replay.tape->tasks[replay.next];
    if (task->ready && !task->ready()) return false;
    replay.next++;
    if (task->run) perform(*task, Launch::kReplay, stream);
  }
  return true;
}

void unblock(Stream* stream) {
  std::lock_guard<std::mutex> lock(mutex);
  blocked.erase(std::remove(blocked.begin(), blocked.end(), stream), blocked.end());
}

void block(Stream* stream) {
  std::lock_guard<std::mutex> lock(mutex);
  if (std::find(blocked.begin(), blocked.end(), stream) == blocked.end())
    blocked.push_back(stream);
}

// Run what a stream has to do, until all is done or the first of it waits.
void drain(Stream* stream) {
  if (stream->running) return;  // one of its own tasks ends another stream's wait
  stream->running = true;
  try {
    while (!stream->backlog.empty() && run(stream->backlog.front(), stream)) stream->backlog.pop_front();
  } catch (...) {
    stream->running = false;
    stream->backlog.clear();
    unblock(stream);
    throw;
  }
  stream->running = false;
  if (stream->backlog.empty()) {
    unblock(stream);
  } else {
    count_event("graph:pauses");
    block(stream);
  }
}

AclError wait(const char* why, bool is_blocked) {
  if (capture)
    return fail(kCaptureForbids, std::string("the host waits for the device (") + why +
                                     ") while a graph is captured");
  count_event(std::string("sync:") + why);
  if (is_blocked)
    return fail(kEndless, std::string("the host waits (") + why +
                              ") for a graph's replay that waits for an ExternalEvent; nobody is "
                              "left to record it");
  return kOk;
}

}  // namespace

Mode mode() {
  if (update) return Mode::kUpdate;
  return capture ? Mode::kCapture : Mode::kEager;
}

static void record_on(Capture& open, Task task) {
  if (!task.name.empty()) count_op(task.name, task.traffic, Launch::kCapture);
  auto shared = std::make_shared<Task>(std::move(task));
  open.tape->tasks.push_back(shared);
  if (open.group) open.group->tasks.push_back(shared);
}

void record(Task task) { record_on(*capture, std::move(task)); }

void replace(Task task) {
  auto& tasks = update->group->tasks;
  if (update->next >= tasks.size())
    throw std::runtime_error("npu_sim: " + task.name + " in an update of a task group that holds " +
                             std::to_string(tasks.size()) + " ops only");
  Task& replaced = *tasks[update->next];
  if (replaced.name != task.name)
    throw std::runtime_error("npu_sim: " + task.name + " in an update of a task group that has " +
                             replaced.name + " at this place");
  update->next++;
  replaced = std::move(task);
}

static void keep_in(Capture& open, void* begin, size_t bytes) {
  if (!bytes) return;
  size_t& size = open.kept_sizes[begin];
  if (size >= bytes) return;
  size = bytes;
  auto* from = static_cast<char*>(begin);
  open.kept.push_back({from, std::string(from, bytes)});
}

void keep(void* begin, size_t bytes) { keep_in(*capture, begin, bytes); }

void join(Stream* stream, const Event* event) {
  if (stream->capture || !event->capture || !event->capture->open) return;
  stream->capture = event->capture;
  event->capture->open->streams.push_back(stream);
  advance(stream);  // the wait itself has to come back to where the capture began
}

Stream* performing() { return performing_stream; }

void perform(const Task& task, Launch launch, Stream* stream) {
  Stream* const outer = std::exchange(performing_stream, stream);
  const bool copies = task.host_copy && launch != Launch::kCapture;
  if (copies) before_copying(stream, *task.host_copy);
  task.run();
  performing_stream = outer;
  if (launch == Launch::kCapture) return;
  if (copies) set_off(stream, *task.host_copy);
  if (!task.name.empty()) count_op(task.name, task.traffic, launch);
  if (task.copied) count_copy(task.copies, task.copied);
}

AclError host_waits(const char* why, Stream* stream) {
  resume_here();
  std::unique_lock<std::mutex> lock(mutex);
  const bool is_blocked = stream ? !stream->backlog.empty() : !blocked.empty();
  lock.unlock();
  return wait(why, is_blocked);
}

AclError host_waits_for(const Event* event) {
  resume_here();
  return wait("event", !event->pending.expired());
}

AclError may_launch(Stream* stream, const std::string& name) {
  resume_here();
  if (capture && stream->capture != capture->tape)
    return fail(kStreamNotCaptured,
                name + " is launched on stream " + std::to_string(stream->id) +
                    " while a graph is captured on stream " +
                    std::to_string(capture->streams[0]->id) +
                    ", and has waited for no event of the capture: it would not be in the graph");
  if (stream->backlog.empty()) {
    advance(stream);
    return kOk;
  }
  return fail(kEndless, name +
                            " is launched on a stream on which a graph's replay waits for an "
                            "ExternalEvent; the simulator cannot hold it back");
}

AclError submit(Stream* stream, Task task, void* changes, size_t bytes) {
  // The thread may be torch_npu's, which empties its queue of tasks: the stream says what is captured.
  Capture* open = stream->capture ? stream->capture->open : nullptr;
  if (!open && capture && !task.name.empty()) return may_launch(stream, task.name);
  advance(stream);
  if (open) {
    if (changes) {
      keep_in(*open, changes, bytes);
      perform(task, Launch::kCapture, stream);
    }
    record_on(*open, std::move(task));
  } else if (!stream->backlog.empty() || (task.ready && !task.ready())) {
    auto tape = std::make_shared<Tape>();
    tape->tasks.push_back(std::make_shared<Task>(std::move(task)));
    stream->backlog.push_back({tape});
    drain(stream);
  } else if (task.run) {
    perform(task, Launch::kEager, stream);
  }
  return kOk;
}

void resume() {
  if (!is_of_program) {
    left_to_resume = true;
    return;
  }
  std::vector<Stream*> waiting;
  {
    std::lock_guard<std::mutex> lock(mutex);
    waiting = blocked;
  }
  for (Stream* stream : waiting) drain(stream);
}

void resume_here() {
  is_of_program = true;
  if (resumes) return;
  const std::lock_guard<std::mutex> lock(resuming);
  resumes = true;
  try {
    if (left_to_resume.exchange(false)) resume();
  } catch (...) {
    resumes = false;
    throw;
  }
  resumes = false;
}

}  // namespace npu_sim

using namespace npu_sim;

ACL_API AclError aclmdlRICaptureBegin(void* handle, int) {
  static std::atomic<uint32_t> next{1};
  if (capture) return fail(kStreamCaptured, "this thread captures a graph already");
  Stream* stream = stream_of(handle);
  if (stream->capture) return fail(kStreamCaptured, "a graph is captured on this stream already");
  capture = std::make_unique<Capture>();
  capture->tape = std::make_shared<Tape>();
  capture->tape->id = next++;
  capture->tape->open = capture.get();
  capture->streams.push_back(stream);
  stream->capture = capture->tape;
  return kOk;
}

ACL_API AclError aclmdlRICaptureEnd(void* handle, void** model) {
  if (!capture || stream_of(handle) != capture->streams[0])
    return fail(kInvalidParam, "the capture ends on a stream on which none has begun");
  const std::unique_ptr<Capture> ended = std::move(capture);
  ended->tape->open = nullptr;
  for (Stream* stream : ended->streams) stream->capture.reset();
  put_back(*ended);
  const Stream* origin = ended->streams[0];
  for (const Stream* stream : ended->streams)
    if (stream != origin && !covers(origin, stream))
      return fail(kStreamUnjoined, "the capture on stream " + std::to_string(origin->id) +
                                       " ends without waiting for stream " +
                                       std::to_string(stream->id) + ", which takes part in it");
  count_event("graph:captures");
  *model = ended->tape.get();
  std::lock_guard<std::mutex> lock(mutex);
  tapes[*model] = ended->tape;
  return kOk;
}

ACL_API AclError aclmdlRICaptureGetInfo(void* handle, int* status, void** model) {
  const Stream* stream = stream_of(handle);
  const bool active = stream->capture != nullptr;
  *status = active;
  if (model) *model = active ? stream->capture.get() : nullptr;
  return kOk;
}

ACL_API AclError aclmdlRICaptureThreadExchangeMode(int*) { return kOk; }

ACL_API AclError aclmdlRIExecuteAsync(void* model, void* handle) {
  resume_here();
  Stream* stream = stream_of(handle);
  Replay replay;
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto tape = tapes.find(model);
    if (tape == tapes.end()) return fail(kInvalidParam, "replay of a graph that does not exist");
    replay.tape = tape->second;
  }
  count_event("graph:replays");
  advance(stream);
  stream->backlog.push_back(replay);
  drain(stream);
  return kOk;
}

ACL_API AclError aclmdlRIDestroy(void* model) {
  std::lock_guard<std::mutex> lock(mutex);
  auto tape = tapes.find(model);
  if (tape == tapes.end()) return fail(kInvalidParam, "a graph is destroyed twice");
  for (const auto& group : tape->second->groups) task_groups.erase(group.get());
  tapes.erase(tape);
  return kOk;
}

ACL_API AclError aclmdlRIGetId(void* model, uint32_t* id) {
  *id = static_cast<Tape*>(model)->id;
  return kOk;
}

ACL_API AclError aclmdlRICaptureTaskGrpBegin(void*) {
  if (!capture || capture->group)
    return fail(kInvalidParam, "a task group begins outside of a capture or within another");
  capture->group = std::make_shared<TaskGroup>();
  return kOk;
}

ACL_API AclError aclmdlRICaptureTaskGrpEnd(void*, void** handle) {
  if (!capture || !capture->group) return fail(kInvalidParam, "no task group has begun");
  *handle = capture->group.get();
  std::lock_guard<std::mutex> lock(mutex);
  task_groups[*handle] = capture->group;
  capture->tape->groups.push_back(std::move(capture->group));
  return kOk;
}

ACL_API AclError aclmdlRICaptureTaskUpdateBegin(void*, void* handle) {
  if (update) return fail(kInvalidParam, "an update of a task group begins within another");
  std::lock_guard<std::mutex> lock(mutex);
  auto group = task_groups.find(handle);
  if (group == task_groups.end()) return fail(kInvalidParam, "update of an unknown task group");
  update = std::make_unique<Update>();
  update->group = group->second;
  return kOk;
}

ACL_API AclError aclmdlRICaptureTaskUpdateEnd(void*) {
  if (!update) return fail(kInvalidParam, "no update of a task group has begun");
  const std::unique_ptr<Update> ended = std::move(update);
  count_event("graph:updates");
  if (ended->next != ended->group->tasks.size())
    return fail(kInvalidParam, "an update of a task group replaced " +
                                   std::to_string(ended->next) + " of its " +
                                   std::to_string(ended->group->tasks.size()) + " ops");
  return kOk;
}
