#include "stream.h"

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <unistd.h>

#include "tape.h"

using npu_sim::Event;
using npu_sim::Stream;
using npu_sim::stream_of;
using npu_sim::Task;

npu_sim::Stream* npu_sim::stream_of(void* handle) {
  static Stream by_default;
  return handle ? static_cast<Stream*>(handle) : &by_default;
}

namespace {

constexpr uint32_t kExternalFlag = 0x20;

double milliseconds() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

AclError create_stream(void** stream) {
  static std::atomic<int32_t> next{1};
  auto* created = new Stream;
  created->id = next++;
  *stream = created;
  return kOk;
}

AclError create_event(void** event, uint32_t flag) {
  auto* created = new Event;
  created->external = flag & kExternalFlag;
  *event = created;
  return kOk;
}

AclError wait_for(void* handle) {
  Stream* stream = stream_of(handle);
  const AclError error = npu_sim::host_waits("stream", stream);
  return error ? error : npu_sim::host_learns(stream);
}

AclError wait_for_all() {
  const AclError error = npu_sim::host_waits("device");
  return error ? error : npu_sim::host_learns_all();
}

}  // namespace

ACL_API AclError aclrtCreateStream(void** stream) { return create_stream(stream); }
ACL_API AclError aclrtCreateStreamWithConfig(void** stream, uint32_t, uint32_t) {
  return create_stream(stream);
}
// Streams are few and torch_npu keeps them in pools: they live until the process ends.
ACL_API AclError aclrtDestroyStream(void*) { return kOk; }
ACL_API AclError aclrtDestroyStreamForce(void*) { return kOk; }

ACL_API AclError aclrtSynchronizeStream(void* stream) {
  return wait_for(stream);
}
ACL_API AclError aclrtSynchronizeStreamWithTimeout(void* stream, int32_t) {
  return wait_for(stream);
}
ACL_API AclError aclrtSynchronizeDevice() { return wait_for_all(); }
ACL_API AclError aclrtSynchronizeDeviceWithTimeout(int32_t) { return wait_for_all(); }

ACL_API AclError aclrtStreamQuery(void* stream, int* status) {
  npu_sim::resume_here();
  *status = !stream_of(stream)->backlog.empty();
  return *status ? kOk : npu_sim::host_learns(stream_of(stream));
}
ACL_API AclError aclrtStreamGetId(void* stream, int32_t* id) {
  *id = stream_of(stream)->id;
  return kOk;
}
ACL_API AclError aclrtSetStreamFailureMode(void*, uint64_t) { return kOk; }
ACL_API AclError aclrtSetStreamAttribute(void*, int, void*) { return kOk; }
ACL_API AclError aclrtSetStreamOverflowSwitch(void*, uint32_t) { return kOk; }
ACL_API AclError aclrtGetStreamOverflowSwitch(void*, uint32_t* flag) {
  *flag = 0;
  return kOk;
}

ACL_API AclError aclrtCreateEvent(void** event) { return create_event(event, 0); }
ACL_API AclError aclrtCreateEventWithFlag(void** event, uint32_t flag) {
  return create_event(event, flag);
}
ACL_API AclError aclrtCreateEventExWithFlag(void** event, uint32_t flag) {
  return create_event(event, flag);
}
ACL_API AclError aclrtDestroyEvent(void* event) {
  // A tape may still name an external event; they are few, so they stay.
  if (!static_cast<Event*>(event)->external) delete static_cast<Event*>(event);
  return kOk;
}

ACL_API AclError aclrtRecordEvent(void* handle, void* stream_handle) {
  auto* event = static_cast<Event*>(handle);
  Stream* stream = stream_of(stream_handle);
  event->capture = stream->capture;
  if (event->capture && !event->external) {
    event->done = npu_sim::reached(stream);
    return kOk;  // orders streams within the graph: the tape is in order
  }
  Task task;
  // Lives as long as the task: in the backlog of a stream, or until submit() has run it.
  const auto pending = std::make_shared<char>();
  if (!event->capture) event->pending = pending;
  task.run = [event, pending] {
    event->recorded = true;
    event->done = npu_sim::reached(npu_sim::performing());
    event->recorded_at = milliseconds();
    npu_sim::resume();
  };
  return npu_sim::submit(stream, std::move(task));
}

ACL_API AclError aclrtStreamWaitEvent(void* stream, void* handle) {
  auto* event = static_cast<Event*>(handle);
  Stream* waiting = stream_of(stream);
  npu_sim::join(waiting, event);
  if (!event->external) {  // what was launched before it has run
    npu_sim::learn(waiting, event->done);
    return kOk;
  }
  Task task;
  task.ready = [event] { return event->recorded; };
  task.run = [event] { npu_sim::learn(npu_sim::performing(), event->done); };
  return npu_sim::submit(stream_of(stream), std::move(task));
}

ACL_API AclError aclrtResetEvent(void* handle, void* stream) {
  auto* event = static_cast<Event*>(handle);
  Task task;
  task.run = [event] { event->recorded = false; };
  return npu_sim::submit(stream_of(stream), std::move(task));
}

ACL_API AclError aclrtSynchronizeEvent(void* event) {
  const AclError error = npu_sim::host_waits_for(static_cast<Event*>(event));
  return error ? error : npu_sim::host_learns(static_cast<Event*>(event)->done);
}
ACL_API AclError aclrtQueryEventStatus(void* event, int* status) {
  npu_sim::resume_here();
  auto* asked = static_cast<Event*>(event);
  *status = asked->external ? asked->recorded : asked->pending.expired();
  return *status ? npu_sim::host_learns(asked->done) : kOk;
}
ACL_API AclError aclrtQueryEventWaitStatus(void* event, int* status) {
  *status = 0;
  return npu_sim::host_learns(static_cast<Event*>(event)->done);
}
ACL_API AclError aclrtEventElapsedTime(float* time, void* begin, void* end) {
  *time = static_cast<float>(static_cast<Event*>(end)->recorded_at -
                             static_cast<Event*>(begin)->recorded_at);
  return kOk;
}
ACL_API AclError aclrtEventGetTimestamp(void* event, uint64_t* time) {
  *time = static_cast<uint64_t>(static_cast<Event*>(event)->recorded_at * 1000);
  return kOk;
}

// Numbers in device memory that one stream writes and another waits for.
static std::mutex written_mutex;
static std::map<void*, npu_sim::Clock> written;  // what was done before, by address

ACL_API AclError aclrtValueWrite(void* address, uint64_t value, uint32_t, void* stream) {
  Task task;
  task.run = [=] {
    *static_cast<uint64_t*>(address) = value;
    {
      std::lock_guard<std::mutex> lock(written_mutex);
      written[address] = npu_sim::reached(npu_sim::performing());
    }
    npu_sim::resume();
  };
  return npu_sim::submit(stream_of(stream), std::move(task));
}

ACL_API AclError aclrtValueWait(void* address, uint64_t value, uint32_t condition, void* stream) {
  enum { kAtLeast, kEqual, kAnyBit, kNotAllBits };
  Task task;
  task.ready = [=] {
    const uint64_t now = *static_cast<uint64_t*>(address);
    switch (condition) {
      case kAtLeast: return static_cast<int64_t>(now - value) >= 0;
      case kEqual: return now == value;
      case kAnyBit: return (now & value) != 0;
      default: return ~(now | value) != 0;
    }
  };
  task.run = [=] {
    std::lock_guard<std::mutex> lock(written_mutex);
    npu_sim::learn(npu_sim::performing(), written[address]);
  };
  return npu_sim::submit(stream_of(stream), std::move(task));
}

// Callbacks to the host run where they are launched; a thread may poll for reports in vain.
using Callback = void (*)(void*);

static AclError callback(Callback function, void* data, void* stream) {
  Task task;
  task.run = [=] { function(data); };
  return npu_sim::submit(stream_of(stream), std::move(task));
}

ACL_API AclError aclrtLaunchCallback(Callback function, void* data, int, void* stream) {
  return callback(function, data, stream);
}
ACL_API AclError aclrtLaunchHostFunc(void* stream, Callback function, void* data) {
  return callback(function, data, stream);
}
ACL_API AclError aclrtSubscribeReport(uint64_t, void*) { return kOk; }
ACL_API AclError aclrtUnSubscribeReport(uint64_t, void*) { return kOk; }
ACL_API AclError aclrtProcessReport(int32_t timeout_ms) {
  constexpr int32_t kPoll = 100;
  usleep((timeout_ms > 0 && timeout_ms < kPoll ? timeout_ms : kPoll) * 1000);
  return kOk;
}
