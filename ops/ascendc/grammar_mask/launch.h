// Launches grammar_mask's kernels. Host only; CANN's build generates the headers of the launchers.
#pragma once
#include <aclrtlaunch_spec_grammar_mask_bfloat16.h>
#include <aclrtlaunch_spec_grammar_mask_float16.h>
#include <aclrtlaunch_spec_grammar_mask_float32.h>

#include "call.h"

namespace spec {

// Returns CANN's error code, 0 if there was none.
inline uint32_t launch(const spec_grammar_mask& call, const Tiling& tiling, void*,
                       void* stream) {
#define SPEC_LAUNCH(kernel) \
  return ACLRT_LAUNCH_KERNEL(kernel)(tiling.cores, stream, SPEC_GRAMMAR_CALL(call, tiling))
  SPEC_FOR_DTYPE(call.dtype, spec_grammar_mask, SPEC_LAUNCH)
#undef SPEC_LAUNCH
}

}  // namespace spec
