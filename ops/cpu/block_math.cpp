// Compiled once per instruction set, with SPEC_ISA naming it. Everything is in an anonymous
// namespace and nothing of the standard library is instantiated here: a shared inline function
// compiled for a newer processor could end up in code that runs on an older one.
#include "block_math.h"

#include <cstring>

#ifdef __AVX512DQ__
#include "collect_avx512.h"
#include "philox_avx512.h"
#include "sum_avx512.h"
#endif

#ifndef SPEC_ISA
#define SPEC_ISA portable
#endif
#define SPEC_JOIN2(a, b) a##b
#define SPEC_JOIN(a, b) SPEC_JOIN2(a, b)
#define SPEC_TEXT2(a) #a
#define SPEC_TEXT(a) SPEC_TEXT2(a)

namespace spec {
namespace {

constexpr float kNegativeInfinity = -__builtin_inff();

inline float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint32_t as_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// 2^y for y < 127, relative error below 3e-7; 0 below -126 and for NaN. A polynomial of degree 5,
// fitted to the least relative error on [-1/2, 1/2].
inline float exp2(float y) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = y + kRound;
  const float f = y - (shifted - kRound);
  float p = 0x1.5c08e4p-10f;
  p = p * f + 0x1.3d0c52p-7f;
  p = p * f + 0x1.c6b6e4p-5f;
  p = p * f + 0x1.ebf918p-3f;
  p = p * f + 0x1.62e428p-1f;
  p = p * f + 0x1.000002p+0f;
  // The low bits of `shifted` are the integer part of y: they are added to the exponent of p.
  const float power = as_float(as_bits(p) + (as_bits(shifted) << 23));
  return y >= -126.0f ? power : 0.0f;
}

// (x - shift) * scale - exponent. With a fused instruction, block_weighting() makes the shift 0
// where it can: one product and one difference are left. The product can be far larger than their
// result, so the two may be rounded only once, together. That is what the fused instruction does.
// Without one, the shift keeps the product small.
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
constexpr bool kFused = true;
inline float power(float x, Weighting w) {
  return __builtin_fmaf(x - w.shift, w.scale, -w.exponent);
}
#else
constexpr bool kFused = false;
inline float power(float x, Weighting w) { return (x - w.shift) * w.scale - w.exponent; }
#endif

inline float weight(float x, Weighting w) {
  const float weight = exp2(power(x, w));
  return x >= w.threshold ? weight : 0.0f;
}

Weighting block_weighting(float reference, float scale) {
  const float power = reference * scale;
  if (kFused && power > -0x1p20f && power < 0x1p20f) {
    return {0.0f, scale, __builtin_ceilf(power), kNegativeInfinity};
  }
  return {reference, scale, 0.0f, kNegativeInfinity};
}

inline float larger(float a, float b) { return a > b ? a : b; }  // b where a is NaN

// Keeps 16 running maxima, one for every 16th value, and then takes the largest of them. Written
// out because not every compiler vectorises the plain loop.
float block_max(const float* x, int n) {
  constexpr int kLanes = 16;
  float lanes[kLanes];
  for (int j = 0; j < kLanes; j++) lanes[j] = kNegativeInfinity;
  for (; n >= kLanes; n -= kLanes, x += kLanes) {
#pragma omp simd
    for (int j = 0; j < kLanes; j++) lanes[j] = larger(x[j], lanes[j]);
  }
  for (int j = 0; j < n; j++) lanes[j] = larger(x[j], lanes[j]);
  for (int width = kLanes / 2; width > 0; width /= 2) {
#pragma omp simd
    for (int j = 0; j < width; j++) lanes[j] = larger(lanes[j + width], lanes[j]);
  }
  return lanes[0];
}

int block_find(const float* x, int n, float value) {
  constexpr int kStep = 64;
  int start = 0;
  for (; start + kStep <= n; start += kStep) {
    const float* step = x + start;
    int hits = 0;
#pragma omp simd reduction(+ : hits)
    for (int i = 0; i < kStep; i++) hits += step[i] == value;
    if (hits) break;
  }
  while (start < n && !(x[start] == value)) start++;
  return start;
}

int block_count(const float* x, int n, float low) {
  int hits = 0;
#pragma omp simd reduction(+ : hits)
  for (int i = 0; i < n; i++) hits += x[i] >= low;
  return hits;
}

void block_maxima(const float* x, int n, float* out) {
#ifdef __AVX512DQ__
  avx512::maxima(x, n, out);
#else
  for (int start = 0; start < n; start += kChunk) {
    const int left = n - start;
    *out++ = block_max(x + start, left < kChunk ? left : kChunk);
  }
#endif
}

#ifdef __AVX512DQ__
constexpr auto block_collect = avx512::collect;
constexpr auto block_places = avx512::places;
constexpr auto block_mark = avx512::mark;
#else
int block_places(const float* x, int n, float low, int32_t* out) {
  constexpr int kStep = 16;
  const int32_t* first = out;
  for (int start = 0; start < n; start += kStep) {
    const int end = n - start < kStep ? n : start + kStep;
    if (!block_count(x + start, end - start, low)) continue;
    for (int i = start; i < end; i++) {
      *out = i;
      out += x[i] >= low;
    }
  }
  return static_cast<int>(out - first);
}

void block_mark(const float* x, int n, float low, uint64_t* bits) {
  for (int start = 0; start < kChunk; start += 64) {
    const int count = n - start < 64 ? n - start : 64;
    uint64_t found = 0;
#pragma omp simd reduction(| : found)
    for (int i = 0; i < count; i++) found |= uint64_t{x[start + i] >= low} << i;
    *bits++ = found;
  }
}

inline int is_in(float x, float low, float high) { return (x >= low) & (x <= high); }

int block_collect(const float* x, int n, float low, float high, float* out) {
  constexpr int kStep = 16;
  const float* first = out;
  for (; n >= kStep; n -= kStep, x += kStep) {
    int hits = 0;
#pragma omp simd reduction(+ : hits)
    for (int i = 0; i < kStep; i++) hits += is_in(x[i], low, high);
    if (hits == kStep) {
      std::memcpy(out, x, kStep * sizeof(float));
      out += kStep;
    } else if (hits) {
      // Every value is written, and `out` moves on only past those in the range. A branch instead
      // would be mispredicted often.
      for (int i = 0; i < kStep; i++) {
        *out = x[i];
        out += is_in(x[i], low, high);
      }
    }
  }
  for (int i = 0; i < n; i++) {
    *out = x[i];
    out += is_in(x[i], low, high);
  }
  return static_cast<int>(out - first);
}
#endif

// Lanes of a sum. They fill enough registers to keep a processor busy. Each adds up only kBlock /
// 64 values of a block, so that even rounding errors that all point the same way stay below 1e-6.
constexpr int kLanes = 64;

inline float sum_lanes(float* lanes) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
#pragma omp simd
    for (int j = 0; j < width; j++) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

template <bool kFetch>
float sum_generic(const float* x, int n, Weighting w) {
  float lanes[kLanes] = {};
  for (; n >= kLanes; n -= kLanes, x += kLanes) {
    for (int j = 0; kFetch && j < kLanes; j += 16) __builtin_prefetch(x + kBlock + j);
#pragma omp simd
    for (int j = 0; j < kLanes; j++) lanes[j] += weight(x[j], w);
  }
  for (int j = 0; j < n; j++) lanes[j] += weight(x[j], w);
  return sum_lanes(lanes);
}

float block_sum(const float* x, int n, Weighting w) {
#ifdef __AVX512DQ__
  if (w.shift == 0.0f) return avx512::sum(x, n, w);
#endif
  return sum_generic<false>(x, n, w);
}

float block_read(const float* x, int n, Weighting w, float* out) {
#ifdef __AVX512DQ__
  if (w.shift == 0.0f) return avx512::read(x, n, w, out);
#endif
  block_maxima(x, n, out);
  return sum_generic<true>(x, n, w);
}

void block_weigh(const float* x, int n, Weighting w, float* out) {
#pragma omp simd
  for (int i = 0; i < n; i++) out[i] = weight(x[i], w);
}

inline float residual(float x, float q, Weighting w, float factor) {
  return larger(factor * weight(x, w) - larger(q, 0.0f), 0.0f);
}

float block_residual(
    const float* x, const float* q, int n, Weighting w, float factor, float* out) {
  float lanes[kLanes] = {};
  for (; n >= kLanes; n -= kLanes, x += kLanes, q += kLanes, out += kLanes) {
#pragma omp simd
    for (int j = 0; j < kLanes; j++) {
      out[j] = residual(x[j], q[j], w, factor);
      lanes[j] += out[j];
    }
  }
  for (int j = 0; j < n; j++) {
    out[j] = residual(x[j], q[j], w, factor);
    lanes[j] += out[j];
  }
  return sum_lanes(lanes);
}

// At least log2(x): the bits of a float are its logarithm, where that is taken as linear between
// powers of two. They are at most 0.09 less, so -log2 is bounded from above.
inline float least_log2(float x) { return static_cast<float>(as_bits(x)) * 0x1p-23f - 127.0f; }

// At most -log(1 - u), which is an exponential number: two terms of its series.
inline float least_exponential(uint32_t word) {
  const float u = (static_cast<float>(word) + 0.5f) * 0x1p-32f;
  return u + 0.499f * u * u;
}

// At least (x - max) * scale - log(number).
inline float bound(float x, float max, float scale, float number) {
  constexpr float kLog2 = 0.693147f;  // rounded down: the term may have either sign
  const float gain = -least_log2(number);
  return (x - max) * scale * kShrink + gain * kLog2 + 1e-4f;
}

#ifdef __AVX512DQ__
using avx512::draw;
#else
inline void draw(const uint32_t* call, const uint32_t* chunk, NoiseSource noise, Draws* out) {
#pragma omp simd
  for (int j = 0; j < Draws::kCount; j++) {
    const PhiloxWords words =
        philox({call[j], chunk[j], noise.position_low, noise.position_high}, noise.seed);
    out->x[j] = words.x;
    out->y[j] = words.y;
    out->z[j] = words.z;
    out->w[j] = words.w;
  }
}
#endif

int block_chunk_bounds(const float* chunk_max, int n, float max, float scale, float low,
                       NoiseSource noise, ChunkLeast* least, float* out) {
  constexpr int kCount = Draws::kCount;
  uint32_t call[kCount], chunk[kCount];
  for (int j = 0; j < kCount; j++) {
    call[j] = NoiseSource::kLeast;
    chunk[j] = j;
  }
  const auto group = [&](int start, int count) {
    Draws words;
    draw(call, chunk, noise, &words);
#pragma omp simd
    for (int j = 0; j < count; j++) {
      const int c = start + j;
      least[c] = {words.x[j], words.y[j]};
      const float number = least_exponential(words.x[j]) * (1.0f / kChunk);
      const float most = bound(chunk_max[c], max, scale, number);
      out[c] = chunk_max[c] >= low ? most : kNegativeInfinity;
      chunk[j] += kCount;
    }
  };
  int start = 0;
  for (; start + kCount <= n; start += kCount) group(start, kCount);
  if (start < n) group(start, n - start);
  return block_find(out, n, block_max(out, n));
}

void block_token_bounds(const Candidates& tokens, float max, float scale, NoiseSource noise,
                        float* out) {
  constexpr uint32_t kCalls = NoiseSource::kCalls;
  for (int start = 0; start < tokens.count; start += Draws::kCount) {
    uint32_t call[Draws::kCount];
    for (int j = 0; j < Draws::kCount; j++) call[j] = tokens.place[start + j] % kCalls;
    Draws words;
    draw(call, tokens.chunk + start, noise, &words);
#pragma omp simd
    for (int j = 0; j < Draws::kCount; j++) {
      const int i = start + j;
      const uint32_t turn = tokens.place[i] / kCalls;
      const uint32_t low = turn & 1 ? words.y[j] : words.x[j];
      const uint32_t high = turn & 1 ? words.w[j] : words.z[j];
      const float beyond = least_exponential(turn & 2 ? high : low);
      const float least = least_exponential(tokens.least[i]) * (1.0f / kChunk);
      out[i] = bound(tokens.logit[i], max, scale, least + beyond);
    }
  }
}

void block_from_bfloat16(const uint16_t* x, int n, float* out) {
#pragma omp simd
  for (int i = 0; i < n; i++) out[i] = as_float(static_cast<uint32_t>(x[i]) << 16);
}

void block_from_float16(const uint16_t* x, int n, float* out) {
#pragma omp simd
  for (int i = 0; i < n; i++) {
    const uint32_t half = x[i];
    // Exponent and mantissa moved into place, then the exponents' biases made equal.
    const float finite = as_float((half & 0x7fffu) << 13) * 0x1p112f;
    const uint32_t special = (half & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
    out[i] = as_float(as_bits(finite) | special | (half & 0x8000u) << 16);
  }
}

}  // namespace

extern const BlockMath SPEC_JOIN(block_math_, SPEC_ISA);
const BlockMath SPEC_JOIN(block_math_, SPEC_ISA) = {
    SPEC_TEXT(SPEC_ISA), block_max,          block_maxima,        block_find,
    block_count,         block_collect,      block_places,        block_mark,
    block_weighting,     block_sum,          block_read,          block_weigh,
    block_residual,      block_chunk_bounds, block_token_bounds,  block_from_bfloat16,
    block_from_float16,
};

}  // namespace spec
