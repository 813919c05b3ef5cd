// A CPU emulator of the AscendC vector API for Atlas A2/A3: kernels include this name and get CANN's
// header from the device compiler, this one from g++. Written from the public API reference.
#pragma once
#include "emulator/reduce.h"
