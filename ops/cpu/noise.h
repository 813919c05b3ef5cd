// The noise of verify_seeded and verify_tree. vllm_ascend_spec/ops/verify_seeded/noise.py says what it is and why.
#pragma once

#include <cmath>

#include "block_math.h"

namespace spec {

// The numbers of one position: a function of seed, position and token alone.
class Noise {
 public:
  Noise(int64_t seed, int64_t position)
      : source{{low(seed), high(seed)}, low(position), high(position)} {}

  // From the first word of the call for a chunk, its least number is this over kChunk.
  static double exponential(uint32_t word) { return -std::log1p((word + 0.5) * -0x1p-32); }
  // How much the token at `place` of a chunk exceeds the chunk's least number.
  double beyond(int chunk, int place) const {
    const PhiloxWords words = source.call(place % NoiseSource::kCalls, chunk);
    const uint32_t each[] = {words.x, words.y, words.z, words.w};
    return exponential(each[place / NoiseSource::kCalls]);
  }

  const NoiseSource source;

 private:
  static uint32_t low(int64_t value) { return static_cast<uint32_t>(value); }
  static uint32_t high(int64_t value) { return static_cast<uint32_t>(value >> 32); }
};

}  // namespace spec
