// What a kernel's host side passes on. Host only.
#pragma once
#include <cstdint>

namespace spec {

enum class Dtype : int32_t { kFloat32 = 0, kBfloat16 = 1, kFloat16 = 2 };

struct Tiling {
  uint32_t cores = 1;  // blocks of the launch
  uint32_t tile = 0;   // logits of a tile
  // Whether a core does whole requests, row after row, and stops at the first rejection.
  bool by_request = false;
  uint32_t flags = 0;      // of verify_sample
  uint64_t workspace = 0;  // bytes
};

inline uint8_t* address(const void* pointer) {
  return static_cast<uint8_t*>(const_cast<void*>(pointer));
}

}  // namespace spec

// Calls Launch(name) with the kernel for a type of logits; kernels are launched by name.
#define SPEC_FOR_DTYPE(dtype, Name, Launch)                              \
  switch (static_cast<spec::Dtype>(dtype)) {                             \
    case spec::Dtype::kFloat32: Launch(Name##_float32); break;           \
    case spec::Dtype::kBfloat16: Launch(Name##_bfloat16); break;         \
    default: Launch(Name##_float16); break;                              \
  }
