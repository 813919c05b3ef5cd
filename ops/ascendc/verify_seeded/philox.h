// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011) in scalar and
// in vector instructions.
//
// The vector units of Atlas A2 and A3 have neither products of 64 bits (Mull is for Ascend 950, as
// is PhiloxRandom) nor an exclusive or: products are put together of halves, and a ^ b is
// (a | b) - (a & b).
#pragma once
#include "../common/order.h"

namespace spec {

constexpr uint32_t kPhiloxRounds = 10;
constexpr uint32_t kFirstFactor = 0xD2511F53, kSecondFactor = 0xCD9E8D57;
constexpr uint32_t kFirstStep = 0x9E3779B9, kSecondStep = 0xBB67AE85;

struct PhiloxKey {
  uint32_t first, second;

  SPEC_FN void step() {
    first += kFirstStep;
    second += kSecondStep;
  }
};
// The counter, and the random words that it becomes.
struct PhiloxWords {
  uint32_t x, y, z, w;
};

SPEC_FN PhiloxWords philox(PhiloxWords at, PhiloxKey key) {
  for (uint32_t round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t first = static_cast<uint64_t>(kFirstFactor) * at.x;
    const uint64_t second = static_cast<uint64_t>(kSecondFactor) * at.z;
    at = PhiloxWords{static_cast<uint32_t>(second >> 32) ^ at.y ^ key.first,
                     static_cast<uint32_t>(second),
                     static_cast<uint32_t>(first >> 32) ^ at.w ^ key.second,
                     static_cast<uint32_t>(first)};
    key.step();
  }
  return at;
}

using Words = LocalTensor<int32_t>;

// Many counters at once, with one key. All buffers hold as many words as there are counters.
class VectorPhilox {
 public:
  static constexpr uint32_t kBuffers = 11;
  // The counters, to be filled before run(), and the random words after it. run() moves them.
  Words x, y, z, w;

  SPEC_FN void use(const Words buffers[kBuffers]) {
    x = buffers[0];
    y = buffers[1];
    z = buffers[2];
    w = buffers[3];
    first_ = buffers[4];
    second_ = buffers[5];
    half_ = buffers[6];
    sum_ = buffers[7];
    carry_ = buffers[8];
    low_bits_ = buffers[9];
    key_ = buffers[10];
  }

  SPEC_FN void run(PhiloxKey key, uint32_t count) {
    count_ = static_cast<int32_t>(count);
    AscendC::Duplicate(low_bits_, 0xffff, count_);
    vector_order();
    for (uint32_t round = 0; round < kPhiloxRounds; ++round) {
      multiply(x, first_, kFirstFactor);
      multiply(z, second_, kSecondFactor);
      exclusive_or(second_, y);
      exclusive_or(second_, key.first);
      exclusive_or(first_, w);
      exclusive_or(first_, key.second);
      const Words free_first = y, free_second = w;
      y = z;
      w = x;
      x = second_;
      z = first_;
      first_ = free_first;
      second_ = free_second;
      key.step();
    }
  }

 private:
  // `a` becomes the low words of a * factor, `high` the high ones.
  SPEC_FN void multiply(const Words& a, const Words& high, uint32_t factor) {
    const uint32_t low_factor = factor & 0xffffu, high_factor = factor >> 16;
    to_high_half(high, a);
    logical_and(half_, a, low_bits_);
    vector_order();
    times(sum_, half_, low_factor);
    times(carry_, high, low_factor);
    vector_order();
    to_high_half(sum_, sum_);
    times(half_, half_, high_factor);
    times(high, high, high_factor);
    times(a, a, factor);
    vector_order();
    AscendC::Add(sum_, sum_, carry_, count_);  // below 2^32
    vector_order();
    logical_and(carry_, sum_, low_bits_);
    vector_order();
    AscendC::Add(half_, half_, carry_, count_);  // so is this
    to_high_half(sum_, sum_);
    vector_order();
    to_high_half(half_, half_);
    AscendC::Add(high, high, sum_, count_);
    vector_order();
    AscendC::Add(high, high, half_, count_);
    vector_order();
  }

  SPEC_FN void exclusive_or(const Words& a, const Words& b) {
    AscendC::Or(halves(sum_), halves(a), halves(b), 2 * count_);
    logical_and(carry_, a, b);
    vector_order();
    AscendC::Sub(a, sum_, carry_, count_);
    vector_order();
  }
  SPEC_FN void exclusive_or(const Words& a, uint32_t b) {
    AscendC::Duplicate(key_, static_cast<int32_t>(b), count_);
    vector_order();
    exclusive_or(a, key_);
  }

  // Integers wrap around: the low word of a product is the same whether they have a sign.
  SPEC_FN void times(const Words& to, const Words& from, uint32_t factor) {
    AscendC::Muls(to, from, static_cast<int32_t>(factor), count_);
  }
  SPEC_FN void to_high_half(const Words& to, const Words& from) {
    AscendC::ShiftRight(to.ReinterpretCast<uint32_t>(), from.ReinterpretCast<uint32_t>(), 16u,
                        count_);
  }
  SPEC_FN void logical_and(const Words& to, const Words& a, const Words& b) {
    AscendC::And(halves(to), halves(a), halves(b), 2 * count_);
  }
  static SPEC_FN LocalTensor<uint16_t> halves(const Words& words) {
    return words.ReinterpretCast<uint16_t>();
  }

  Words first_, second_, half_, sum_, carry_, low_bits_, key_;
  int32_t count_;
};

}  // namespace spec
