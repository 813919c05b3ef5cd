// The noise of one position. vllm_ascend_spec/ops/verify_seeded/noise.py says what it is and why.
#pragma once
#include "../verify_sample/context.h"
#include "arguments.h"
#include "philox.h"

namespace spec {

// Calls of the generator for a group's tokens; the call after them is for its least number.
constexpr uint32_t kCalls = kGroup / 4;

// What decides the noise of a row, beside the token.
struct NoiseSource {
  PhiloxKey key;
  uint32_t low, high;  // of the position

  SPEC_FN NoiseSource(uint64_t seed, uint64_t position)
      : key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
        low(static_cast<uint32_t>(position)),
        high(static_cast<uint32_t>(position >> 32)) {}

  // The random word of the token at `place` of a group.
  SPEC_FN uint32_t word(uint32_t group, uint32_t place) const {
    const PhiloxWords words = philox({place % kCalls, group, low, high}, key);
    const uint32_t turn = place / kCalls;
    return turn == 0 ? words.x : turn == 1 ? words.y : turn == 2 ? words.z : words.w;
  }
};

// Four vectors that a computation may overwrite, and a mask.
struct Scratch {
  LocalTensor<float> a, b, c, d;
  LocalTensor<uint8_t> mask;
};

// numbers = exponential numbers of rate 1, of n words; n is a multiple of kLanes. `numbers` may
// have the place of scratch.d, no other. log(1 - u) has to be right where u is small, and Ln is so
// only in absolute terms: it is a series in z = u / (2 - u) up to u = 1/2, as in the Triton kernel.
SPEC_FN void exponential_numbers(const LocalTensor<float>& numbers, const Words& words,
                                 const Scratch& scratch, uint32_t n) {
  const auto count = static_cast<int32_t>(n);
  const LocalTensor<float>&u = scratch.a, &z = scratch.b, &square = scratch.c, &series = scratch.d;
  const Words near = u.template ReinterpretCast<int32_t>();
  // Words from 2^31 on are negative here: `near` is the distance from the nearer end.
  AscendC::Not(near.ReinterpretCast<int16_t>(), words.ReinterpretCast<int16_t>(), 2 * count);
  AscendC::Cast(series, words, AscendC::RoundMode::CAST_RINT, n);
  vector_order();
  AscendC::CompareScalar(scratch.mask, series, 0.0f, AscendC::CMPMODE::GE, n);
  AscendC::Max(near, near, words, count);
  vector_order();
  AscendC::Cast(u, near, AscendC::RoundMode::CAST_RINT, n);
  vector_order();
  AscendC::Adds(u, u, 0.5f, count);
  vector_order();
  AscendC::Muls(u, u, 2.3283064365386963e-10f, count);
  vector_order();
  AscendC::Muls(z, u, -1.0f, count);
  vector_order();
  AscendC::Adds(z, z, 2.0f, count);
  vector_order();
  AscendC::Div(z, u, z, count);
  vector_order();
  AscendC::Mul(square, z, z, count);
  AscendC::Duplicate(series, 1.0f / 15.0f, count);
  vector_order();
  for (int32_t odd = 13; odd > 0; odd -= 2) {
    AscendC::Mul(series, series, square, count);
    vector_order();
    AscendC::Adds(series, series, 1.0f / static_cast<float>(odd), count);
    vector_order();
  }
  AscendC::Mul(series, series, z, count);
  AscendC::Ln(u, u, count);
  vector_order();
  AscendC::Muls(series, series, 2.0f, count);
  AscendC::Muls(u, u, -1.0f, count);
  vector_order();
  AscendC::Select(numbers, scratch.mask, series, u, AscendC::SELMODE::VSEL_TENSOR_TENSOR_MODE, n);
  vector_order();
}

// The least numbers of a row's groups, some tiles of the row at a time.
//
// It has the context's three large buffers while a row is sampled: five arrays each, of which three
// are kept, and what follows `kept` is free again once prepare() is over.
template <typename In>
class LeastNumbers {
 public:
  // Groups at once: 196,608 tokens.
  static constexpr uint32_t kSpan = 1536;

  SPEC_FN explicit LeastNumbers(Context<In>& context) : c(context) {}

  // Of groups [first, first + count), count being at most kSpan.
  SPEC_FN void prepare(const NoiseSource& source, uint32_t first, uint32_t count) {
    const uint32_t n = round_up(count, kLanes);
    const auto lanes = static_cast<int32_t>(n);
    Words buffers[VectorPhilox::kBuffers];
    for (uint32_t i = 0; i < VectorPhilox::kBuffers; ++i) {
      buffers[i] = array(kKept + i).template ReinterpretCast<int32_t>();
    }
    VectorPhilox generator;
    generator.use(buffers);
    AscendC::Duplicate(generator.x, static_cast<int32_t>(kCalls), lanes);
    AscendC::CreateVecIndex(generator.y, static_cast<int32_t>(first), n);
    AscendC::Duplicate(generator.z, static_cast<int32_t>(source.low), lanes);
    AscendC::Duplicate(generator.w, static_cast<int32_t>(source.high), lanes);
    vector_order();
    generator.run(source.key, n);
    AscendC::DataCopy(words(0), generator.x, n);
    AscendC::DataCopy(words(1), generator.y, n);
    vector_order();
    const LocalTensor<float> gains = array(2);
    exponential_numbers(gains, words(0), scratch(), n);
    AscendC::Muls(gains, gains, 1.0f / kGroup, lanes);
    vector_order();
    AscendC::Ln(gains, gains, lanes);
    vector_order();
    AscendC::Muls(gains, gains, -1.0f, lanes);
    vector_order();
    first_ = first;
  }

  // Keeps what prepare() has made of `count` groups in global memory, and gets some of it back.
  SPEC_FN void keep_in(const GlobalTensor<float>& memory) { memory_ = memory; }
  SPEC_FN void keep(uint32_t row, uint32_t count) {
    order<HardEvent::V_MTE3>();
    for (uint32_t i = 0; i < kKept; ++i) {
      AscendC::DataCopyPad(memory_[place_of(row, i, first_)], array(i),
                           AscendC::DataCopyExtParams(1, count * 4, 0, 0, 0));
    }
    order<HardEvent::MTE3_V>();
  }
  SPEC_FN void restore(uint32_t row, uint32_t first, uint32_t count) {
    for (uint32_t i = 0; i < kKept; ++i) copy_in(array(i), memory_[place_of(row, i, first)], count);
    first_ = first;
  }

  // -log of the least numbers from `group` on; a multiple of 8 after the first.
  SPEC_FN LocalTensor<float> gains(uint32_t group) const { return array(2)[group - first_]; }
  // For the scalar unit: the same, the random word, and the token that has the least number.
  SPEC_FN float gain(uint32_t group) const { return array(2).GetValue(group - first_); }
  SPEC_FN int32_t word(uint32_t group) const { return words(0).GetValue(group - first_); }
  SPEC_FN uint32_t place(uint32_t group) const {
    return static_cast<uint32_t>(words(1).GetValue(group - first_)) % kGroup;
  }

  // Free after prepare(): a vector of half a tile, and four of kSpan.
  SPEC_FN LocalTensor<float> half_tile() const { return c.work; }
  SPEC_FN Scratch scratch() const {
    return Scratch{array(kPerBuffer), array(kPerBuffer + 1), array(kPerBuffer + 2),
                   array(kPerBuffer + 3), c.mask};
  }

 private:
  static constexpr uint32_t kPerBuffer = kTile / kSpan;
  static_assert(3 * kPerBuffer >= kKept + VectorPhilox::kBuffers, "lower kSpan");
  static_assert(kSpan % kLanes == 0 && kSpan >= kTile / kGroup, "a tile's groups in whole repeats");

  SPEC_FN LocalTensor<float> array(uint32_t index) const {
    const LocalTensor<float>& buffer = index < kPerBuffer       ? c.weights
                                       : index < 2 * kPerBuffer ? c.list
                                                                : c.work;
    return buffer[index % kPerBuffer * kSpan];
  }
  SPEC_FN Words words(uint32_t index) const {
    return array(index).template ReinterpretCast<int32_t>();
  }

  SPEC_FN uint64_t place_of(uint32_t row, uint32_t which, uint32_t group) const {
    const uint64_t width = static_cast<uint64_t>(c.num_tiles) * (c.args.tile / kGroup);
    return (static_cast<uint64_t>(row) * kKept + which) * width + group;
  }

  Context<In>& c;
  GlobalTensor<float> memory_;
  uint32_t first_ = 0;
};

}  // namespace spec
