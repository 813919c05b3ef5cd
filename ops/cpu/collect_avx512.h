// The values of a block that lie in a range, with AVX-512, which can put the chosen lanes of a
// register side by side.
#pragma once

#include <immintrin.h>

#include "block_math.h"

namespace spec {
namespace {
namespace avx512 {

inline int collect(const float* x, int n, float low, float high, float* out) {
  constexpr int kWidth = 16;
  const __m512 lowest = _mm512_set1_ps(low), highest = _mm512_set1_ps(high);
  const auto wanted = [&](__mmask16 lanes, __m512 value) {
    lanes = _mm512_mask_cmp_ps_mask(lanes, value, lowest, _CMP_GE_OQ);
    return _mm512_mask_cmp_ps_mask(lanes, value, highest, _CMP_LE_OQ);
  };
  const float* const first = out;
  for (; n >= kWidth; n -= kWidth, x += kWidth) {
    const __m512 value = _mm512_loadu_ps(x);
    const __mmask16 lanes = wanted(0xffff, value);
    // Whole registers: no more was written than is read. Compressing into memory is slow on Zen 4.
    _mm512_storeu_ps(out, _mm512_maskz_compress_ps(lanes, value));
    out += __builtin_popcount(lanes);
  }
  const __mmask16 rest = (1u << n) - 1;
  const __m512 value = _mm512_maskz_loadu_ps(rest, x);
  const __mmask16 lanes = wanted(rest, value);
  const int count = __builtin_popcount(lanes);
  _mm512_mask_storeu_ps(out, (1u << count) - 1, _mm512_maskz_compress_ps(lanes, value));
  return static_cast<int>(out - first) + count;
}

// The indices of the values at or above `low`. Without branches, which nobody could predict; whole
// registers are written.
inline int places(const float* x, int n, float low, int32_t* out) {
  constexpr int kWidth = 16;
  const __m512 lowest = _mm512_set1_ps(low);
  __m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const int32_t* const first = out;
  for (; n > 0; n -= kWidth, x += kWidth) {
    const __mmask16 lanes = n < kWidth ? (1u << n) - 1 : 0xffff;
    const __m512 value = _mm512_maskz_loadu_ps(lanes, x);
    const __mmask16 wanted = _mm512_mask_cmp_ps_mask(lanes, value, lowest, _CMP_GE_OQ);
    _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(wanted, index));
    out += __builtin_popcount(wanted);
    index = _mm512_add_epi32(index, _mm512_set1_epi32(kWidth));
  }
  return static_cast<int>(out - first);
}

// Sets the bits of the values at or above `low`, of a chunk at most.
inline void mark(const float* x, int n, float low, uint64_t* bits) {
  constexpr int kWidth = 16;
  const __m512 lowest = _mm512_set1_ps(low);
  const auto marks = [&](int start) {
    const int left = n - start;
    const __mmask16 lanes = left >= kWidth ? 0xffff : left > 0 ? (1u << left) - 1 : 0;
    const __m512 value = _mm512_maskz_loadu_ps(lanes, x + start);
    return uint64_t{_mm512_mask_cmp_ps_mask(lanes, value, lowest, _CMP_GE_OQ)};
  };
  for (int start = 0; start < kChunk; start += 4 * kWidth) {
    *bits++ = marks(start) | marks(start + kWidth) << 16 | marks(start + 2 * kWidth) << 32 |
              marks(start + 3 * kWidth) << 48;
  }
}

}  // namespace avx512
}  // namespace
}  // namespace spec
