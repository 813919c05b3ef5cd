// Processes that exchange memory: what a communicator of HCCL is here.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "api.h"

namespace npu_sim {

class Group {
 public:
  // Meet the other processes that call this with the same name; waits for all of them.
  // Throws std::runtime_error if they do not come.
  static std::unique_ptr<Group> meet(const std::string& name, uint32_t size, uint32_t rank);
  ~Group();

  uint32_t size() const { return size_; }
  uint32_t rank() const { return rank_; }
  const std::string& name() const { return name_; }

  // Show `bytes` at `mine` to everybody, piece by piece. `take` sees each piece of every rank,
  // by rank: (rank, piece, its offset in that rank's bytes, its length). All ranks must call this
  // in the same order with the same number of bytes; where they differ, all throw
  // std::runtime_error. HCCL would hang or mix up tensors.
  void exchange(const void* mine, size_t bytes,
                const std::function<void(uint32_t, const char*, size_t, size_t)>& take);

 private:
  struct Shared;
  Group(std::string name, uint32_t size, uint32_t rank, Shared* shared);
  char* slot(uint32_t rank) const;
  size_t& amount(uint32_t rank) const;
  void check_amounts(size_t bytes);
  void barrier();

  std::string name_;
  uint32_t size_, rank_;
  Shared* shared_;
};

}  // namespace npu_sim
