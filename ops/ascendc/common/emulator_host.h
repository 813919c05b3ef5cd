// What the ops' emulator hosts share: the structs a caller fills, workspaces, and errors as text.
#pragma once
#include <string>
#include <vector>

#include "tiling.h"
#include "emulator/launch.h"

extern "C" {

// How to launch. vllm_ascend_spec/ops/ascendc_library.py has the same struct.
struct spec_launch {
  int32_t num_cores;
  int32_t mode;       // spec::Mode
  int64_t tile;       // 0: chosen
  emulator_options options;
  emulator_stats* stats;  // may be null
  emulator_error* error;  // a broken rule of the hardware
  char* message;      // a refused argument
  int64_t message_size;
};
}

namespace spec {

enum Status { kDone = 0, kRefused = 1, kBroken = 2 };

inline int64_t size_of(int32_t dtype) {
  return static_cast<Dtype>(dtype) == Dtype::kFloat32 ? 4 : 2;
}

inline int refuse(const spec_launch& launch, const std::string& message) {
  std::snprintf(launch.message, launch.message_size, "%s", message.c_str());
  return kRefused;
}

inline int status_of(int broken) { return broken == 0 ? kDone : kBroken; }

// Bytes that rows of `width` elements cover, the last one without what follows it.
inline uint64_t span(int64_t rows, int64_t width, int64_t stride, int64_t element) {
  return rows == 0 ? 0 : static_cast<uint64_t>(((rows - 1) * stride + width) * element);
}

inline Wish wish_of(const spec_launch& launch) {
  return Wish{launch.tile, static_cast<Mode>(launch.mode)};
}

// Device memory is not initialised either: what a kernel finds in it must not matter.
class Workspace {
 public:
  explicit Workspace(uint64_t bytes) : bytes_(bytes + 64, 0xa5) {}
  uint8_t* data() {
    return bytes_.data() + (64 - reinterpret_cast<uintptr_t>(bytes_.data()) % 64) % 64;
  }

 private:
  std::vector<uint8_t> bytes_;
};

}  // namespace spec
