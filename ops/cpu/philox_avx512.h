// Sixteen calls of Philox4x32-10 at once with AVX-512. Compilers take twice as many instructions:
// they do not find the product of every other lane, nor the choice of its halves by one shuffle.
#pragma once

#include <immintrin.h>

#include "block_math.h"

namespace spec {
namespace {
namespace avx512 {

struct Product {
  __m512i high, low;
};

// The 64 bits of x * factor in each lane, as two halves.
inline Product multiply(__m512i x, uint32_t factor) {
  constexpr __mmask16 kEven = 0x5555, kOdd = 0xaaaa;
  const __m512i y = _mm512_set1_epi32(static_cast<int>(factor));
  const __m512i even = _mm512_mul_epu32(x, y);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), y);
  return {_mm512_mask_shuffle_epi32(odd, kEven, even, _MM_PERM_DDBB),
          _mm512_mask_shuffle_epi32(even, kOdd, odd, _MM_PERM_CCAA)};
}

inline __m512i exclusive_or(__m512i a, __m512i b, uint32_t c) {
  return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi32(static_cast<int>(c)), 0x96);
}

inline void draw(const uint32_t* call, const uint32_t* chunk, NoiseSource noise, Draws* out) {
  __m512i x = _mm512_loadu_si512(call), y = _mm512_loadu_si512(chunk);
  __m512i z = _mm512_set1_epi32(static_cast<int>(noise.position_low));
  __m512i w = _mm512_set1_epi32(static_cast<int>(noise.position_high));
  PhiloxKey key = noise.seed;
#pragma GCC unroll 10
  for (int round = 0; round < kPhiloxRounds; round++) {
    const Product first = multiply(x, kPhiloxFactors[0]), second = multiply(z, kPhiloxFactors[1]);
    x = exclusive_or(second.high, y, key.low);
    y = second.low;
    z = exclusive_or(first.high, w, key.high);
    w = first.low;
    key = next(key);
  }
  _mm512_storeu_si512(out->x, x);
  _mm512_storeu_si512(out->y, y);
  _mm512_storeu_si512(out->z, z);
  _mm512_storeu_si512(out->w, w);
}

}  // namespace avx512
}  // namespace
}  // namespace spec
