#include "group.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

namespace npu_sim {

namespace {

constexpr size_t kSlot = 1 << 20;  // bytes per rank in shared memory
constexpr size_t kHead = 64;       // before them: how many the rank exchanges in all
constexpr int kSpins = 200;        // before a waiting rank sleeps
constexpr int kSleep = 20;         // microseconds

size_t segment_size(uint32_t ranks, size_t header) { return header + (kHead + kSlot) * ranks; }

}  // namespace

// At the head of the segment, zero when it is created. The ranks' slots follow.
struct Group::Shared {
  std::atomic<uint32_t> arrived;
  std::atomic<uint32_t> round;
  char padding[56];
};

Group::Group(std::string name, uint32_t size, uint32_t rank, Shared* shared)
    : name_(std::move(name)), size_(size), rank_(rank), shared_(shared) {}

Group::~Group() { munmap(shared_, segment_size(size_, sizeof(Shared))); }

std::unique_ptr<Group> Group::meet(const std::string& name, uint32_t size, uint32_t rank) {
  const size_t bytes = segment_size(size, sizeof(Shared));
  const int file = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)))
    throw std::runtime_error("no shared memory " + name + ": " + strerror(errno));
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + name);
  std::unique_ptr<Group> group(new Group(name, size, rank, static_cast<Shared*>(memory)));
  group->barrier();
  if (rank == 0) shm_unlink(name.c_str());  // everybody has it; it goes with the last of them
  return group;
}

char* Group::slot(uint32_t rank) const {
  return reinterpret_cast<char*>(shared_ + 1) + (kHead + kSlot) * rank + kHead;
}

size_t& Group::amount(uint32_t rank) const {
  return *reinterpret_cast<size_t*>(slot(rank) - kHead);
}

void Group::check_amounts(size_t bytes) {
  std::string wrong;
  for (uint32_t rank = 0; rank < size_; rank++)
    if (amount(rank) != bytes)
      wrong = "rank " + std::to_string(rank_) + " exchanges " + std::to_string(bytes) +
              " bytes, rank " + std::to_string(rank) + " " + std::to_string(amount(rank));
  if (wrong.empty()) return;
  barrier();  // before another exchange writes the amounts: all ranks see that they differ
  throw std::runtime_error(wrong);
}

void Group::barrier() {
  using Clock = std::chrono::steady_clock;
  static const auto patience = std::chrono::seconds(environment("NPU_SIM_HCCL_TIMEOUT_S", 300));
  const uint32_t round = shared_->round.load();
  if (shared_->arrived.fetch_add(1) + 1 == size_) {
    shared_->arrived = 0;
    shared_->round.fetch_add(1);
    return;
  }
  const auto begin = Clock::now();
  for (int spins = 0; shared_->round.load() == round; spins++) {
    if (spins < kSpins) {
      sched_yield();
    } else if (Clock::now() - begin < patience) {
      usleep(kSleep);
    } else {
      throw std::runtime_error("rank " + std::to_string(rank_) + " of " + std::to_string(size_) +
                               " waited in vain for the others (NPU_SIM_HCCL_TIMEOUT_S)");
    }
  }
}

void Group::exchange(const void* mine, size_t bytes,
                     const std::function<void(uint32_t, const char*, size_t, size_t)>& take) {
  amount(rank_) = bytes;
  for (size_t offset = 0; offset < bytes; offset += kSlot) {
    const size_t length = std::min(kSlot, bytes - offset);
    memcpy(slot(rank_), static_cast<const char*>(mine) + offset, length);
    barrier();
    check_amounts(bytes);  // here every rank fails, and none waits
    for (uint32_t rank = 0; rank < size_; rank++) take(rank, slot(rank), offset, length);
    barrier();
  }
}

}  // namespace npu_sim
