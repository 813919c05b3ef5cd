// HCCL between processes on one machine. A collective runs when it is launched; captured, it is
// a task on the tape like any op, and all ranks replay it in the same order.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "api.h"
#include "group.h"
#include "reduce.h"
#include "stream.h"
#include "tape.h"

using npu_sim::Group;

namespace {

constexpr int kHcclError = 1;
constexpr size_t kRootInfoBytes = 4108;
constexpr size_t kNameBytes = 64;

Group* group(void* comm) { return static_cast<Group*>(comm); }

int hccl_fail(const std::string& message) {
  fprintf(stderr, "npu_sim: HCCL: %s\n", message.c_str());
  return npu_sim::fail(kHcclError, message);
}

// Launch a collective that reads `read` bytes and changes `written` bytes at `into`.
int launch(const char* name, void* stream, size_t read, void* into, size_t written,
           std::function<void()> run) {
  npu_sim::Task task;
  task.name = std::string("hccl::") + name;
  task.traffic = {static_cast<int64_t>(read), static_cast<int64_t>(written)};
  task.run = std::move(run);
  try {
    return npu_sim::submit(npu_sim::stream_of(stream), std::move(task), into, written);
  } catch (const std::runtime_error& error) {
    return hccl_fail(std::string(name) + ": " + error.what());
  }
}

// Every rank reduces all ranks' bytes in the order of the ranks, so that all get the same bits.
void reduce_all(Group* members, const void* from, void* into, size_t bytes, int type, int op) {
  const size_t size = npu_sim::element_size(type);
  std::vector<char> sum(bytes);
  members->exchange(from, bytes, [&](uint32_t rank, const char* piece, size_t at, size_t length) {
    if (rank == 0)
      memcpy(&sum[at], piece, length);
    else if (!npu_sim::reduce(&sum[at], piece, length / size, type, op))
      throw std::runtime_error("no reduction " + std::to_string(op) + " of data type " +
                               std::to_string(type));
  });
  memcpy(into, sum.data(), bytes);
}

}  // namespace

ACL_API int HcclGetRootInfo(char* info) {
  static std::atomic<int> next{0};
  memset(info, 0, kRootInfoBytes);
  snprintf(info, kNameBytes, "/npu_sim_%d_%d", getpid(), next++);
  shm_unlink(info);  // what a process of the same number left when it was killed
  return kOk;
}

ACL_API int HcclCommInitRootInfo(uint32_t ranks, const char* info, uint32_t rank, void** comm) {
  try {
    *comm = Group::meet(info, ranks, rank).release();
  } catch (const std::runtime_error& error) {
    return hccl_fail(error.what());
  }
  return kOk;
}

ACL_API int HcclCommInitRootInfoConfig(uint32_t ranks, const char* info, uint32_t rank,
                                       const void*, void** comm) {
  return HcclCommInitRootInfo(ranks, info, rank, comm);
}

ACL_API int HcclCommDestroy(void* comm) {
  delete group(comm);
  return kOk;
}

ACL_API int HcclGetCommName(void* comm, char* name) {
  strcpy(name, group(comm)->name().c_str());
  return kOk;
}
ACL_API int HcclGetRankSize(void* comm, uint32_t* size) {
  *size = group(comm)->size();
  return kOk;
}
ACL_API int HcclGetRankId(void* comm, uint32_t* rank) {
  *rank = group(comm)->rank();
  return kOk;
}
ACL_API int HcclGetCommAsyncError(void*, int* error) {
  *error = kOk;
  return kOk;
}
ACL_API int HcclSetConfig(int, int64_t) { return kOk; }
ACL_API int HcclGetConfig(int, int64_t* value) {
  *value = 0;
  return kOk;
}
// How many fields of the configuration struct are known: those that name a communicator.
ACL_API uint32_t HcclGetCommConfigCapability() { return 8; }
ACL_API const char* HcclGetErrorString(int) { return "npu_sim: see aclGetRecentErrMsg"; }

ACL_API int HcclAllReduce(void* from, void* into, uint64_t count, int type, int op, void* comm,
                          void* stream) {
  const size_t bytes = count * npu_sim::element_size(type);
  return launch("all_reduce", stream, bytes, into, bytes,
                [=] { reduce_all(group(comm), from, into, bytes, type, op); });
}

ACL_API int HcclReduce(void* from, void* into, uint64_t count, int type, int op, uint32_t root,
                       void* comm, void* stream) {
  const size_t bytes = count * npu_sim::element_size(type);
  return launch("reduce", stream, bytes, into, bytes, [=] {
    std::vector<char> result(bytes);
    reduce_all(group(comm), from, result.data(), bytes, type, op);
    if (group(comm)->rank() == root) memcpy(into, result.data(), bytes);
  });
}

ACL_API int HcclReduceScatter(void* from, void* into, uint64_t count, int type, int op, void* comm,
                              void* stream) {
  const size_t bytes = count * npu_sim::element_size(type);
  const size_t all = bytes * group(comm)->size();
  return launch("reduce_scatter", stream, all, into, bytes, [=] {
    std::vector<char> result(all);
    reduce_all(group(comm), from, result.data(), all, type, op);
    memcpy(into, result.data() + bytes * group(comm)->rank(), bytes);
  });
}

ACL_API int HcclAllGather(void* from, void* into, uint64_t count, int type, void* comm,
                          void* stream) {
  const size_t bytes = count * npu_sim::element_size(type);
  return launch("all_gather", stream, bytes, into, bytes * group(comm)->size(), [=] {
    auto* all = static_cast<char*>(into);
    // In place, `from` is this rank's part of `into`: it is read before it is written.
    const std::vector<char> mine(static_cast<char*>(from), static_cast<char*>(from) + bytes);
    group(comm)->exchange(mine.data(), bytes,
                          [=](uint32_t rank, const char* piece, size_t at, size_t length) {
                            memcpy(all + rank * bytes + at, piece, length);
                          });
  });
}

ACL_API int HcclBroadcast(void* buffer, uint64_t count, int type, uint32_t root, void* comm,
                          void* stream) {
  const size_t bytes = count * npu_sim::element_size(type);
  return launch("broadcast", stream, bytes, buffer, bytes, [=] {
    auto* all = static_cast<char*>(buffer);
    group(comm)->exchange(buffer, bytes,
                          [=](uint32_t rank, const char* piece, size_t at, size_t length) {
                            if (rank == root) memcpy(all + at, piece, length);
                          });
  });
}

ACL_API int HcclScatter(void* from, void* into, uint64_t count, int type, uint32_t root,
                        void* comm, void* stream) {
  const size_t bytes = count * npu_sim::element_size(type);
  return launch("scatter", stream, bytes, into, bytes, [=] {
    // Only the root has something to show; the others show as many zeros.
    const size_t all = bytes * group(comm)->size();
    std::vector<char> shown(all);
    if (group(comm)->rank() == root) memcpy(shown.data(), from, all);
    std::vector<char> seen(all);
    group(comm)->exchange(shown.data(), all,
                          [&](uint32_t rank, const char* piece, size_t at, size_t length) {
                            if (rank == root) memcpy(&seen[at], piece, length);
                          });
    memcpy(into, seen.data() + bytes * group(comm)->rank(), bytes);
  });
}

ACL_API int HcclAlltoAll(const void* from, uint64_t send_count, int send_type, void* into,
                         uint64_t receive_count, int, void* comm, void* stream) {
  const size_t bytes = send_count * npu_sim::element_size(send_type);  // for each rank
  if (send_count != receive_count) return hccl_fail("all_to_all: ranks send unequal amounts");
  const size_t all = bytes * group(comm)->size();
  return launch("all_to_all", stream, all, into, all, [=] {
    const uint32_t me = group(comm)->rank();
    std::vector<char> seen(all);
    group(comm)->exchange(from, all,
                          [&](uint32_t rank, const char* piece, size_t at, size_t length) {
                            for (size_t i = 0; i < length; i++)
                              if ((at + i) / bytes == me)
                                seen[rank * bytes + (at + i) % bytes] = piece[i];
                          });
    memcpy(into, seen.data(), all);
  });
}

ACL_API int HcclBarrier(void* comm, void* stream) {
  return launch("barrier", stream, 0, nullptr, 0, [=] {
    const char token = 0;
    group(comm)->exchange(&token, 1, [](uint32_t, const char*, size_t, size_t) {});
  });
}
