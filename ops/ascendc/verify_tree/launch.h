// Launches verify_tree's kernels. Host only; CANN's build generates the headers of the launchers.
#pragma once
#include <aclrtlaunch_spec_verify_tree_bfloat16.h>
#include <aclrtlaunch_spec_verify_tree_float16.h>
#include <aclrtlaunch_spec_verify_tree_float32.h>

#include "call.h"

namespace spec {

// Returns CANN's error code, 0 if there was none.
inline uint32_t launch(const spec_verify_tree& call, const Tiling& tiling, void* workspace,
                       void* stream) {
#define SPEC_LAUNCH(kernel) \
  return ACLRT_LAUNCH_KERNEL(kernel)(tiling.cores, stream, SPEC_TREE_CALL(call, tiling, workspace))
  SPEC_FOR_DTYPE(call.dtype, spec_verify_tree, SPEC_LAUNCH)
#undef SPEC_LAUNCH
}

}  // namespace spec
