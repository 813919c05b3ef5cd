// Device memory is host memory. Blocks are aligned as CANN's are, and their sum is kept so that
// an engine that sizes its cache by the free memory finds sensible numbers.
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <sys/mman.h>

#include "api.h"
#include "stream.h"
#include "tape.h"

namespace {

constexpr size_t kAlignment = 512;  // bytes
constexpr size_t kSlack = 32;       // bytes that CANN leaves behind a block for its vector units

std::mutex mutex;
std::map<void*, size_t> blocks;
std::map<void*, size_t> pinned;  // the host's
size_t used = 0;

size_t capacity() {
  static const size_t bytes = static_cast<size_t>(npu_sim::environment("NPU_SIM_MEMORY_GB", 8)) << 30;
  return bytes;
}

AclError allocate(void** pointer, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  if (used + bytes > capacity())
    return npu_sim::fail(kOutOfMemory, "device memory is full; NPU_SIM_MEMORY_GB sets its size");
  if (posix_memalign(pointer, kAlignment, bytes + kSlack))
    return npu_sim::fail(kOutOfMemory, "the host has no memory left");
  blocks[*pointer] = bytes;
  used += bytes;
  return kOk;
}

npu_sim::CopyKind direction(int kind) {
  return kind >= 0 && kind <= 3 ? static_cast<npu_sim::CopyKind>(kind)
                                : npu_sim::CopyKind::kDeviceToDevice;
}

bool is_pinned(const void* pointer) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto after = pinned.upper_bound(const_cast<void*>(pointer));
  if (after == pinned.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return pointer < static_cast<char*>(begin) + bytes;
}

void pin(void* pointer, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  pinned[pointer] = bytes;
}

void unpin(void* pointer) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto block = pinned.find(pointer);
  if (block == pinned.end()) return;
  npu_sim::forget(pointer, block->second);
  pinned.erase(block);
}

AclError copy_async(void* to, const void* from, size_t bytes, int kind, void* stream) {
  const auto amount = static_cast<int64_t>(bytes);
  npu_sim::Task task;
  task.run = [=] { memmove(to, from, bytes); };
  if (direction(kind) == npu_sim::CopyKind::kDeviceToDevice) {
    task.name = "aclrtMemcpyAsync";
    task.traffic = {amount, amount};
  } else {
    const bool to_host = direction(kind) == npu_sim::CopyKind::kDeviceToHost;
    void* const host = to_host ? to : const_cast<void*>(from);
    task.copies = direction(kind);
    task.copied = amount;
    if (is_pinned(host)) task.host_copy = npu_sim::HostCopy{to_host, host, bytes, nullptr, ""};
  }
  return npu_sim::submit(npu_sim::stream_of(stream), std::move(task), to, bytes);
}

AclError set_async(void* to, int32_t value, size_t bytes, void* stream) {
  npu_sim::Task task;
  task.name = "aclrtMemsetAsync";
  task.traffic = {0, static_cast<int64_t>(bytes)};
  task.run = [=] { memset(to, value, bytes); };
  return npu_sim::submit(npu_sim::stream_of(stream), std::move(task), to, bytes);
}

}  // namespace

ACL_API AclError aclrtMalloc(void** pointer, size_t bytes, int) { return allocate(pointer, bytes); }
ACL_API AclError aclrtMallocAlign32(void** pointer, size_t bytes, int) {
  return allocate(pointer, bytes);
}
ACL_API AclError aclrtMallocWithCfg(void** pointer, size_t bytes, int, void*) {
  return allocate(pointer, bytes);
}

ACL_API AclError aclrtFree(void* pointer) {
  std::lock_guard<std::mutex> lock(mutex);
  auto block = blocks.find(pointer);
  if (block == blocks.end())
    return npu_sim::fail(kInvalidParam, "aclrtFree of memory that aclrtMalloc did not give");
  used -= block->second;
  blocks.erase(block);
  free(pointer);
  return kOk;
}

ACL_API AclError aclrtGetMemInfo(int, size_t* free_bytes, size_t* total_bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  *total_bytes = capacity();
  *free_bytes = capacity() > used ? capacity() - used : 0;
  return kOk;
}

ACL_API AclError aclrtMallocHost(void** pointer, size_t bytes) {
  if (posix_memalign(pointer, kAlignment, bytes + kSlack)) return kOutOfMemory;
  pin(*pointer, bytes);
  return kOk;
}
ACL_API AclError aclrtMallocHostWithCfg(void** pointer, uint64_t bytes, void*) {
  return aclrtMallocHost(pointer, bytes);
}
ACL_API AclError aclrtFreeHost(void* pointer) {
  unpin(pointer);
  free(pointer);
  return kOk;
}
ACL_API AclError aclrtHostRegister(void* pointer, size_t bytes, int, void** device_pointer) {
  pin(pointer, bytes);
  *device_pointer = pointer;
  return kOk;
}
ACL_API AclError aclrtHostUnregister(void* pointer) {
  unpin(pointer);
  return kOk;
}

ACL_API AclError aclrtMemcpy(void* to, size_t, const void* from, size_t bytes, int kind) {
  AclError error = npu_sim::host_waits("copy");
  if (error) return error;
  memmove(to, from, bytes);
  npu_sim::count_copy(direction(kind), bytes);
  return kOk;
}
ACL_API AclError aclrtMemcpyAsync(void* to, size_t, const void* from, size_t bytes, int kind,
                                  void* stream) {
  return copy_async(to, from, bytes, kind, stream);
}
ACL_API AclError aclrtMemcpyAsyncWithCondition(void* to, size_t, const void* from, size_t bytes,
                                               int kind, void* stream) {
  return copy_async(to, from, bytes, kind, stream);
}
// Belongs to no stream: torch_npu clears a new event's memory with it, during a capture too.
ACL_API AclError aclrtMemset(void* to, size_t, int32_t value, size_t bytes) {
  memset(to, value, bytes);
  return kOk;
}
ACL_API AclError aclrtMemsetAsync(void* to, size_t, int32_t value, size_t bytes, void* stream) {
  return set_async(to, value, bytes, stream);
}

// Virtual memory (expandable segments, sleep mode): the address range is the memory.
namespace {

struct Physical {
  size_t bytes;
};

}  // namespace

ACL_API AclError aclrtReserveMemAddress(void** pointer, size_t bytes, size_t, void*, uint64_t) {
  *pointer = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return *pointer == MAP_FAILED ? kOutOfMemory : kOk;
}
ACL_API AclError aclrtReleaseMemAddress(void*) { return kOk; }
ACL_API AclError aclrtMallocPhysical(void** handle, size_t bytes, const void*, uint64_t) {
  std::lock_guard<std::mutex> lock(mutex);
  *handle = new Physical{bytes};
  used += bytes;
  return kOk;
}
ACL_API AclError aclrtFreePhysical(void* handle) {
  std::lock_guard<std::mutex> lock(mutex);
  auto* physical = static_cast<Physical*>(handle);
  used -= physical->bytes;
  delete physical;
  return kOk;
}
ACL_API AclError aclrtMapMem(void*, size_t, size_t, void*, uint64_t) { return kOk; }
ACL_API AclError aclrtUnmapMem(void*) { return kOk; }
