// The values of a block that lie in a range, with AVX-512, which can put the chosen lanes of a
// register side by side.
#pragma once

#include <immintrin.h>

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

// The indices of the values at or above `low`.
inline int places(const float* x, int n, float low, int32_t* out) {
  constexpr int kWidth = 16, kStep = 64;
  const __m512 lowest = _mm512_set1_ps(low);
  const int32_t* const first = out;
  for (int start = 0; start < n; start += kStep) {
    uint64_t wanted = 0;
    for (int i = 0; i < kStep && start + i < n; i += kWidth) {
      const int left = n - start - i;
      const __mmask16 lanes = left < kWidth ? (1u << left) - 1 : 0xffff;
      const __m512 value = _mm512_maskz_loadu_ps(lanes, x + start + i);
      wanted |= uint64_t{_mm512_mask_cmp_ps_mask(lanes, value, lowest, _CMP_GE_OQ)} << i;
    }
    for (; wanted; wanted &= wanted - 1) *out++ = start + __builtin_ctzll(wanted);
  }
  return static_cast<int>(out - first);
}

}  // namespace avx512
}  // namespace
}  // namespace spec
