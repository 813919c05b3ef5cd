// Filling with a value, with indices, or with copies of elements.
#pragma once
#include "vector.h"

namespace AscendC {

template <typename T>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, const int32_t& count, EMULATOR_SITE) {
  EMULATOR_TYPES(Duplicate, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float);
  emulator::Op op("Duplicate", PIPE_V, site);
  const uint64_t n = emulator::check_count(op, count);
  if (n == 0) return;
  std::fill_n(emulator::write_all(op, dst, n, "dst"), n, scalarValue);
  op.core.vector_bytes += n * sizeof(T);
}

template <typename T>
void CreateVecIndex(LocalTensor<T> dst, const T& firstValue, uint32_t count, EMULATOR_SITE) {
  EMULATOR_TYPES(CreateVecIndex, int16_t, half, int32_t, float);
  emulator::Op op("CreateVecIndex", PIPE_V, site);
  if (count == 0) return;
  T* to = emulator::write_all(op, dst, count, "dst");
  for (uint32_t i = 0; i < count; ++i) {
    to[i] = emulator::narrow<T>(emulator::Computed<T>(firstValue) + static_cast<emulator::Computed<T>>(i));
  }
  op.core.vector_bytes += static_cast<uint64_t>(count) * sizeof(T);
}

template <typename T>
void ArithProgression(const LocalTensor<T>& dst, const T firstValue, const T diffValue,
                      const int32_t count, EMULATOR_SITE) {
  EMULATOR_TYPES(ArithProgression, int16_t, half, int32_t, float);
  emulator::Op op("ArithProgression", PIPE_V, site);
  const uint64_t n = emulator::check_count(op, count);
  if (n == 0) return;
  T* to = emulator::write_all(op, dst, n, "dst");
  for (uint64_t i = 0; i < n; ++i) {
    to[i] = emulator::narrow<T>(emulator::Computed<T>(firstValue) +
                            static_cast<emulator::Computed<T>>(i) * emulator::Computed<T>(diffValue));
  }
  op.core.vector_bytes += n * sizeof(T);
}

// Each of 8 elements a repeat fills one data block.
template <typename T>
void Brcb(const LocalTensor<T>& dst, const LocalTensor<T>& src, int32_t repeatTime,
          const BrcbRepeatParams& params, EMULATOR_SITE) {
  EMULATOR_TYPES(Brcb, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float);
  emulator::Op op("Brcb", PIPE_V, site);
  emulator::check_repeat(op, repeatTime);
  emulator::check_start(op, dst.ref(), "dst");
  EMULATOR_REQUIRE(op, params.dstBlkStride != 0, emulator::Kind::kArgument, "dstBlkStride 0", "1 or more");
  const uint64_t n = 8ull * static_cast<uint64_t>(repeatTime);
  const T* from = emulator::read_all(op, src, n, "src");
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t block = i / 8 * params.dstRepStride + i % 8 * params.dstBlkStride;
    auto* to = reinterpret_cast<T*>(
        op.write(dst.ref(), block * emulator::kBlockBytes, emulator::kBlockBytes, "dst"));
    std::fill_n(to, emulator::kBlockBytes / sizeof(T), from[i]);
  }
  op.core.vector_bytes += n * sizeof(T);
}

}  // namespace AscendC
