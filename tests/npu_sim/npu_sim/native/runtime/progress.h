// What the host and the streams know to be done, and the copies on which that bears.
//
// What is launched runs at once here, but a program must not rely on that. So each stream counts its
// tasks, and knows of the other streams' tasks what it has waited for; the host knows likewise. A
// copy out of pinned memory may take place at any time until the host learns that it is done: what
// lies there must be the same until then. A copy into pinned memory shows its result only then.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "api.h"

namespace npu_sim {

struct Stream;

// By stream: how many of its tasks are done.
using Clock = std::map<int32_t, uint64_t>;

// An asynchronous copy between pinned memory and the device.
struct HostCopy {
  bool to_host;
  void* memory;  // pinned
  size_t bytes;
  std::shared_ptr<void> owner;  // keeps the memory until the copy is done; may be null
  std::string where;            // who launched it
};

// Count one more task of a stream.
void advance(Stream* stream);

// What is done as soon as all that has been launched on a stream is done.
Clock reached(const Stream* stream);

// A stream waits for what a clock says.
void learn(Stream* stream, const Clock& done);

// Whether a stream waits for all that has been launched on the other.
bool covers(const Stream* stream, const Stream* other);

// Call this before a copy on the stream reads or writes pinned memory. What copies that the stream
// has waited for have written there is there for the device, if not for the host; and those that
// read it have read it, so that it may be overwritten.
SIM_API void before_copying(const Stream* stream, const HostCopy& copy);

// A copy was launched on a stream and has taken place as far as the device is concerned.
SIM_API void set_off(const Stream* stream, const HostCopy& copy);

// Do not mind that memory is overwritten whose copy was launched at a place: a line or a function of
// a file, among the innermost callers.
SIM_API void tolerate(const std::string& file_end, const std::string& place);

// The host learns that all tasks of a stream are done, or what a clock says, or all of all streams.
// An error if a copy to the device is among them whose memory has been overwritten.
SIM_API AclError host_learns(const Stream* stream);
AclError host_learns(const Clock& done);
AclError host_learns_all();

// Pinned memory is given back, although copies may be under way.
void forget(const void* memory, size_t bytes);

}  // namespace npu_sim
