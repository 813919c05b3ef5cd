// The device's API: CANN's, or the twin's. Kernels' headers include this one first.
#pragma once
#include "kernel_operator.h"

#define SPEC_FN __aicore__ inline
