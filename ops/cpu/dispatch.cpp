// Which build of block_math.cpp this machine runs.
#include <cstdlib>
#include <cstring>

#include "block_math.h"

namespace spec {

extern const BlockMath block_math_portable;
#ifdef SPEC_HAVE_X86_LEVELS
extern const BlockMath block_math_x86_64_v3;
extern const BlockMath block_math_x86_64_v4;
#endif

static const BlockMath& choose() {
#ifdef SPEC_HAVE_X86_LEVELS
  // For tests: take a lower level than the machine has. A higher one is never taken.
  const char* wanted = std::getenv("VLLM_ASCEND_SPEC_CPU_ISA");
  const bool portable = wanted && !std::strcmp(wanted, "portable");
  const bool v3 = wanted && !std::strcmp(wanted, "x86_64_v3");
  __builtin_cpu_init();
  // The features that ops/build.py turns on, asked for one by one: older compilers do not know the
  // names of the levels (x86-64-v3, x86-64-v4) here.
  const bool has_v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_v4 = has_v3 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (has_v4 && !portable && !v3) return block_math_x86_64_v4;
  if (has_v3 && !portable) return block_math_x86_64_v3;
#endif
  return block_math_portable;
}

const BlockMath& block_math() {
  static const BlockMath& chosen = choose();
  return chosen;
}

}  // namespace spec
