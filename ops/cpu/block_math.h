// Arithmetic on one block of a row: a few thousand floats that stay in the first-level cache.
//
// The implementation (block_math.cpp) is compiled once per instruction set; block_math() picks the
// best one for this machine. Sums run in a fixed order for an instruction set, so results do not
// depend on the number of threads.
#pragma once

#include <cstdint>

#include "philox.h"

namespace spec {

// Floats in a block: 8 KiB, a quarter of a first-level cache.
constexpr int kBlock = 2048;
// Floats in a chunk: so few that a search can skip most chunks of a row with a few high logits.
constexpr int kChunk = 128;
static_assert(kBlock % kChunk == 0, "a chunk lies in one block");

// How a row's logits become unnormalised probabilities: 2^((x - shift) * scale - exponent), and 0
// for x below the threshold. scale is log2(e) / temperature.
struct Weighting {
  float shift;
  float scale;
  float exponent;
  float threshold;  // -inf keeps everything

  // The power of two that x weighs.
  double power(float x) const { return (double{x} - shift) * scale - exponent; }
};

// Random words for the noise of a position, see noise.h.
struct NoiseSource {
  // Calls of the generator for the tokens of a chunk; the one after them is for their least number.
  static constexpr uint32_t kCalls = kChunk / 4, kLeast = kCalls;

  PhiloxKey seed;
  uint32_t position_low, position_high;

  PhiloxWords call(uint32_t call, uint32_t chunk) const {
    return philox({call, chunk, position_low, position_high}, seed);
  }
};

// The words of as many calls as are made at once.
struct Draws {
  static constexpr int kCount = 16;

  uint32_t x[kCount], y[kCount], z[kCount], w[kCount];
};

// Two words of the call for the least number of a chunk: of the number, and of who has it.
struct ChunkLeast {
  uint32_t number, place;
};

// Tokens whose noise is not known yet. None has the least number of its chunk.
struct Candidates {
  static constexpr int kMost = 2 * kChunk;
  static constexpr int kSize = kMost + Draws::kCount;  // a call may write more than there are

  bool has_room() const { return count + kChunk <= kMost; }

  int count = 0;
  uint32_t chunk[kSize] = {}, place[kSize] = {};
  uint32_t least[kSize] = {};  // the word for the least number of the chunk
  float logit[kSize] = {};
};

// Bounds take differences of logits for this much smaller than they are, more than rounding is.
constexpr float kShrink = 1.0f - 0x1p-20f;

struct BlockMath {
  const char* name;
  // Largest value; NaN is passed over. -inf for a block of nothing else.
  float (*max)(const float* x, int n);
  // The same of each chunk, into out[ceil(n / kChunk)]. Prefetches nothing: there is so little
  // arithmetic that prefetches would only take the place of reads; the processor's own are enough.
  void (*maxima)(const float* x, int n, float* out);
  // First index of `value`, or n.
  int (*find)(const float* x, int n, float value);
  // How many values are at or above `low`.
  int (*count)(const float* x, int n, float low);
  // Copies the values in [low, high] to out [n], in their order; returns how many there are.
  int (*collect)(const float* x, int n, float low, float high, float* out);
  // The indices of the values at or above `low` into out [n + 16], in their order; returns how many
  // there are.
  int (*places)(const float* x, int n, float low, int32_t* out);
  // Sets the bits of the values at or above `low`, of a chunk at most, in bits [kChunk / 64].
  void (*mark)(const float* x, int n, float low, uint64_t* bits);
  // A weighting in which `reference`, a finite logit, weighs from 1/2 to 1, without a threshold.
  Weighting (*weighting)(float reference, float scale);
  // Sum of the weights. A value that has no weight may add up to 2^-126.
  float (*sum)(const float* x, int n, Weighting w);
  // The same without a threshold, and the largest value of each chunk into out[ceil(n / kChunk)].
  // Prefetches what follows the block. The arithmetic takes longer than the memory does, as long as
  // it never waits for it.
  float (*read)(const float* x, int n, Weighting w, float* out);
  // The weights themselves.
  void (*weigh)(const float* x, int n, Weighting w, float* out);
  // max(factor * weight - q, 0) into out; returns the sum. A q of NaN or below 0 counts as 0.
  float (*residual)(const float* x, const float* q, int n, Weighting w, float factor, float* out);
  // What (x - max) * scale - log(noise) does not exceed in each of n chunks, which have these
  // largest values, into out [n]; -inf for chunks below `low`. Returns the index of the largest.
  int (*chunk_bounds)(const float* chunk_max, int n, float max, float scale, float low,
                      NoiseSource noise, ChunkLeast* least, float* out);
  // The bounds of each candidate, into out [Candidates::kSize].
  void (*token_bounds)(const Candidates& candidates, float max, float scale, NoiseSource noise,
                       float* out);
  void (*from_bfloat16)(const uint16_t* x, int n, float* out);
  void (*from_float16)(const uint16_t* x, int n, float* out);
};

// The implementation for this machine, chosen once.
const BlockMath& block_math();

}  // namespace spec
