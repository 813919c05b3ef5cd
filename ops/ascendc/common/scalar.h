// What the scalar unit computes: bits of floats, and uniforms without float64.
#pragma once
#include "device.h"

namespace spec {

constexpr float kInfinity = __builtin_inff();
constexpr float kNan = __builtin_nanf("");
constexpr float kLargest = 3.4028234663852886e38f;

union Bits {
  float value;
  uint32_t bits;
};

SPEC_FN uint32_t bits_of(float value) {
  Bits both;
  both.value = value;
  return both.bits;
}

SPEC_FN float float_of(uint32_t bits) {
  Bits both;
  both.bits = bits;
  return both.value;
}

SPEC_FN bool is_nan(float value) { return (bits_of(value) & 0x7fffffffu) > 0x7f800000u; }

// Integers in the order of the floats, -0 and +0 being one.
SPEC_FN int64_t ordered(float value) {
  const uint32_t bits = bits_of(value);
  const int64_t magnitude = static_cast<int64_t>(bits & 0x7fffffffu);
  return (bits >> 31) != 0 ? -magnitude : magnitude;
}

SPEC_FN float from_ordered(int64_t place) {
  return place < 0 ? float_of(0x80000000u | static_cast<uint32_t>(-place))
                   : float_of(static_cast<uint32_t>(place));
}

// The float `steps` places above or below.
SPEC_FN float moved(float value, int64_t steps) { return from_ordered(ordered(value) + steps); }

// A float64 in [0, 1), given by its bits, cut (not rounded) to float32: it stays below 1.
SPEC_FN float cut_uniform(uint64_t bits) {
  const int64_t exponent = static_cast<int64_t>((bits >> 52) & 0x7ffu) - 1023 + 127;
  if (exponent <= 0) return 0.0f;
  const auto mantissa = static_cast<uint32_t>((bits >> 29) & 0x7fffffu);
  return float_of((static_cast<uint32_t>(exponent) << 23) | mantissa);
}

SPEC_FN uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }
SPEC_FN uint32_t most(uint32_t a, uint32_t b) { return a > b ? a : b; }
SPEC_FN uint32_t round_up(uint32_t value, uint32_t unit) {
  return (value + unit - 1) / unit * unit;
}

// A sum that carries what rounding took from it.
struct Sum {
  float total = 0.0f;
  float lost = 0.0f;

  SPEC_FN void add(float value) {
    const float corrected = value - lost;
    const float next = total + corrected;
    lost = (next - total) - corrected;
    total = next;
  }
};

}  // namespace spec
