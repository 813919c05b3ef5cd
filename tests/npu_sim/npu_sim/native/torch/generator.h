// Random numbers. Each NPU generator has a twin on the CPU with the same seed, so that a seeded
// request draws on the simulated NPU what it draws on a CPU.
#pragma once

#include <ATen/core/Generator.h>

namespace npu_sim {

// The twin of an NPU generator, in the state in which the generator is; others as they are.
at::Generator cpu_twin(const at::Generator& generator);

}  // namespace npu_sim
