#include "generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <mutex>
#include <unordered_map>

#include "../runtime/tape.h"

namespace npu_sim {

namespace {

// A drawn-from generator is marked by its offset, which torch_npu counts in fours: seeding it
// again, even with the same seed, takes the mark away.
constexpr uint64_t kStep = 4;

struct Twin {
  at::Generator cpu;
  uint64_t seed = 0;
  uint64_t offset = 0;
};

at::Generator seeded(uint64_t seed, uint64_t offset) {
  // A state that was set from outside, not by drawing, has random numbers of its own.
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  return at::detail::createCPUGenerator(offset ? seed ^ (offset * kOdd) : seed);
}

}  // namespace

at::Generator cpu_twin(const at::Generator& generator) {
  if (generator.device().type() != c10::kPrivateUse1) return generator;
  static std::mutex mutex;
  static std::unordered_map<void*, Twin> twins;
  std::lock_guard<std::mutex> lock(mutex);
  Twin& twin = twins[generator.unsafeGetGeneratorImpl()];
  at::Generator own = generator;
  if (mode() == Mode::kCapture) {  // a capture draws nothing, and torch_npu forbids to look
    return seeded(twin.seed, 0);
  }
  const uint64_t seed = own.current_seed();
  const uint64_t offset = own.get_offset();
  if (!twin.cpu.defined() || twin.seed != seed || twin.offset != offset)
    twin = {seeded(seed, offset), seed, offset};
  twin.offset = offset + kStep;
  own.set_offset(twin.offset);
  return twin.cpu;
}

}  // namespace npu_sim
