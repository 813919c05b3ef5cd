// The device's API: CANN's, or the emulator's. Kernels' headers include this one first.
#pragma once
#include "kernel_operator.h"

#ifdef SPEC_FN
#error "layout.h was included before device.h and has no device functions"
#endif
#define SPEC_FN __aicore__ inline

namespace spec {

using Address = GM_ADDR;  // a macro in CANN: it cannot declare two pointers at once

}  // namespace spec
