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

// A product of positive numbers, at most 1, that may be smaller than every float32.
struct Product {
  float mantissa = 1.0f;  // from 1 to 2; 0 for nothing
  int32_t exponent = 0;

  // Multiply by p / q, p and q of 0 or more, and cut at 1. Nothing stays nothing.
  SPEC_FN void multiply(float p, float q) {
    if (!(p > 0.0f) || q == kInfinity) mantissa = 0.0f;
    if (mantissa == 0.0f) return;
    if (q == 0.0f) {
      *this = Product{};
      return;
    }
    exponent += exponent_of(p) - exponent_of(q);
    const float product = mantissa * mantissa_of(p) / mantissa_of(q);
    exponent += exponent_of(product);
    mantissa = mantissa_of(product);
    if (exponent >= 0) *this = Product{};
  }

  SPEC_FN float value() const {
    if (mantissa == 0.0f || exponent < -126) return 0.0f;
    return mantissa * float_of(static_cast<uint32_t>(exponent + 127) << 23);
  }

 private:
  static constexpr float kUp = 18446744073709551616.0f;  // 2^64: makes every subnormal normal
  static SPEC_FN bool is_normal(float value) { return (bits_of(value) >> 23) != 0; }
  static SPEC_FN int32_t exponent_of(float value) {
    const bool normal = is_normal(value);
    const uint32_t bits = bits_of(normal ? value : value * kUp);
    return static_cast<int32_t>(bits >> 23) - 127 - (normal ? 0 : 64);
  }
  static SPEC_FN float mantissa_of(float value) {
    const uint32_t bits = bits_of(is_normal(value) ? value : value * kUp);
    return float_of((bits & 0x7fffffu) | 0x3f800000u);
  }
};

}  // namespace spec
