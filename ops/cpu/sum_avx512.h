// The sum of a block's weights with AVX-512: the loop in which most of a verification's time is
// spent. Two instructions that compilers do not find by themselves, the fraction of a number and a
// multiplication by a power of two, take the place of six.
#pragma once

#include <immintrin.h>

#include "block_math.h"

namespace spec {
namespace {
namespace avx512 {

constexpr int kWidth = 16;
constexpr int kChains = 4;  // as many sums at once as keep a processor busy

// 2^y for -126 <= y < 127, relative error below 2e-7. A polynomial of degree 5, fitted to the least
// relative error on [0, 1).
inline __m512 exp2(__m512 y) {
  constexpr int kFloor = 1 | 8;  // towards -inf, no exceptions
  const __m512 f = _mm512_reduce_ps(y, kFloor);
  __m512 p = _mm512_set1_ps(0x1.ec320ap-10f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.26900cp-7f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.c95446p-5f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.ebd5a8p-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.62e4f6p-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.fffffep-1f));
  return _mm512_scalef_ps(p, y);
}

// The weights of 16 values; 2^-126 for those that have none, NaN among them.
inline __m512 weigh(__m512 x, Weighting w) {
  const __m512 y = _mm512_fmsub_ps(x, _mm512_set1_ps(w.scale), _mm512_set1_ps(w.exponent));
  return exp2(_mm512_max_ps(y, _mm512_set1_ps(-126.0f)));  // max is the second where y is NaN
}

inline float add_up(const __m512* sums) {
  const __m512 pairs[2] = {_mm512_add_ps(sums[0], sums[2]), _mm512_add_ps(sums[1], sums[3])};
  return _mm512_reduce_add_ps(_mm512_add_ps(pairs[0], pairs[1]));
}

// The first n of 16 lanes.
inline __mmask16 first_lanes(int n) { return n < kWidth ? (1u << n) - 1 : 0xffff; }

// For w.shift == 0.
inline float sum(const float* x, int n, Weighting w) {
  const __m512 threshold = _mm512_set1_ps(w.threshold);
  __m512 sums[kChains] = {};
  const auto add = [&](int j, __mmask16 lanes, __m512 value) {
    lanes = _mm512_mask_cmp_ps_mask(lanes, value, threshold, _CMP_GE_OQ);
    sums[j] = _mm512_mask_add_ps(sums[j], lanes, sums[j], weigh(value, w));
  };
  for (; n >= kChains * kWidth; n -= kChains * kWidth, x += kChains * kWidth) {
#pragma GCC unroll 4
    for (int j = 0; j < kChains; j++) add(j, 0xffff, _mm512_loadu_ps(x + j * kWidth));
  }
  for (; n > 0; n -= kWidth, x += kWidth) {
    const __mmask16 lanes = first_lanes(n);
    add(0, lanes, _mm512_maskz_loadu_ps(lanes, x));
  }
  return add_up(sums);
}

// For w.shift == 0; writes the largest value of each chunk.
inline float read(const float* x, int n, Weighting w, float* out) {
  const __m512 least = _mm512_set1_ps(-__builtin_inff());
  __m512 sums[kChains] = {};
  for (; n >= kChunk; n -= kChunk, x += kChunk) {
    __m512 best[kChains] = {least, least, least, least};
    for (int start = 0; start < kChunk; start += kChains * kWidth) {
#pragma GCC unroll 4
      for (int j = 0; j < kChains; j++) {
        const float* at = x + start + j * kWidth;
        const __m512 value = _mm512_loadu_ps(at);
        __builtin_prefetch(at + kBlock);
        best[j] = _mm512_max_ps(value, best[j]);  // the second where one is NaN
        sums[j] = _mm512_add_ps(sums[j], weigh(value, w));
      }
    }
    *out++ = _mm512_reduce_max_ps(
        _mm512_max_ps(_mm512_max_ps(best[0], best[1]), _mm512_max_ps(best[2], best[3])));
  }
  __m512 best = least;
  for (int left = n; left > 0; left -= kWidth, x += kWidth) {
    const __mmask16 lanes = first_lanes(left);
    const __m512 value = _mm512_mask_loadu_ps(least, lanes, x);
    best = _mm512_max_ps(value, best);
    sums[0] = _mm512_mask_add_ps(sums[0], lanes, sums[0], weigh(value, w));
  }
  if (n > 0) *out = _mm512_reduce_max_ps(best);
  return add_up(sums);
}

// The largest value of each chunk.
inline void maxima(const float* x, int n, float* out) {
  const __m512 least = _mm512_set1_ps(-__builtin_inff());
  for (; n >= kChunk; n -= kChunk, x += kChunk) {
    __m512 best[kChains] = {least, least, least, least};
#pragma GCC unroll 8
    for (int j = 0; j < kChunk / kWidth; j++) {
      best[j % kChains] = _mm512_max_ps(_mm512_loadu_ps(x + j * kWidth), best[j % kChains]);
    }
    *out++ = _mm512_reduce_max_ps(
        _mm512_max_ps(_mm512_max_ps(best[0], best[1]), _mm512_max_ps(best[2], best[3])));
  }
  __m512 best = least;
  for (int left = n; left > 0; left -= kWidth, x += kWidth) {
    best = _mm512_max_ps(_mm512_mask_loadu_ps(least, first_lanes(left), x), best);
  }
  if (n > 0) *out = _mm512_reduce_max_ps(best);
}

}  // namespace avx512
}  // namespace
}  // namespace spec
