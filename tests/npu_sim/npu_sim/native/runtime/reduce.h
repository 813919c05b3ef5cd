// HCCL's data types and reductions, on the CPU.
#pragma once

#include <cstddef>

namespace npu_sim {

// Size in bytes of HCCL's data type number `type`; 0 if it is unknown.
size_t element_size(int type);

// into[i] = op(into[i], from[i]). False: there is no such reduction for this type.
bool reduce(void* into, const void* from, size_t count, int type, int op);

}  // namespace npu_sim
