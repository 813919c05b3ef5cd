// Sums and extremes of float32 vectors in the unified buffer.
#pragma once
#include "limits.h"
#include "order.h"

namespace spec {

// Adds x[0, n) up into its first repeat, halves on halves: errors grow with the depth of the tree.
// n is a multiple of kLanes; x is destroyed.
SPEC_FN void fold_sum(const LocalTensor<float>& x, uint32_t n) {
  while (n > kLanes) {
    const uint32_t half = round_up(n / 2, kLanes);
    AscendC::Add(x, x, x[half], static_cast<int32_t>(n - half));
    vector_order();
    n = half;
  }
}

// The same with maxima.
SPEC_FN void fold_max(const LocalTensor<float>& x, uint32_t n) {
  while (n > kLanes) {
    const uint32_t half = round_up(n / 2, kLanes);
    AscendC::Max(x, x, x[half], static_cast<int32_t>(n - half));
    vector_order();
    n = half;
  }
}

// Sum of x[0, n), which is destroyed; n is a multiple of kLanes.
SPEC_FN float take_sum(const LocalTensor<float>& x, uint32_t n, const LocalTensor<float>& cell) {
  fold_sum(x, n);
  AscendC::WholeReduceSum<float>(cell, x, static_cast<int32_t>(kLanes), 1, 1, 1, 8);
  vector_order();
  return read_one(cell, 0);
}

// values = exp((x - top) * beta) for n elements; values may be x.
SPEC_FN void exponentials(const LocalTensor<float>& values, const LocalTensor<float>& x, float top,
                          float beta, uint32_t n) {
  const auto count = static_cast<int32_t>(n);
  AscendC::Adds(values, x, -top, count);
  vector_order();
  AscendC::Muls(values, values, beta, count);
  vector_order();
  AscendC::Exp(values, values, count);
  vector_order();
}

// NaN becomes -inf; n is a multiple of kLanes.
SPEC_FN void drop_nan(const LocalTensor<float>& x, const LocalTensor<uint8_t>& mask, uint32_t n) {
  AscendC::Compare(mask, x, x, AscendC::CMPMODE::EQ, n);
  vector_order();
  AscendC::Select(x, mask, x, -kInfinity, AscendC::SELMODE::VSEL_TENSOR_SCALAR_MODE, n);
  vector_order();
}

// kept[0, returned) = the elements of x[0, n) whose bit is set in `mask`.
SPEC_FN uint32_t gather(const LocalTensor<float>& kept, const LocalTensor<float>& x,
                        const LocalTensor<uint8_t>& mask, uint32_t n) {
  uint64_t count = 0;
  AscendC::GatherMask(kept, x, mask.ReinterpretCast<uint32_t>(), true, n,
                      AscendC::GatherMaskParams{1, 1, 8, 8}, count);
  vector_order();
  return static_cast<uint32_t>(count);
}

}  // namespace spec
