// Conversions between types.
#pragma once
#include <limits>

#include "gather.h"

namespace emulator {

using AscendC::RoundMode;

// Rounds to a multiple of `unit` (a power of two).
inline double round_to(double value, double unit, RoundMode mode) {
  const double scaled = value / unit;
  if (!std::isfinite(scaled)) return value;
  switch (mode) {
    case RoundMode::CAST_FLOOR:
      return std::floor(scaled) * unit;
    case RoundMode::CAST_CEIL:
      return std::ceil(scaled) * unit;
    case RoundMode::CAST_ROUND:
      return std::round(scaled) * unit;
    case RoundMode::CAST_TRUNC:
      return std::trunc(scaled) * unit;
    case RoundMode::CAST_ODD: {
      const double whole = std::trunc(scaled);
      if (whole == scaled || std::fmod(whole, 2.0) != 0) return whole * unit;
      return (whole + (scaled > 0 ? 1 : -1)) * unit;
    }
    default: {
      const double low = std::floor(scaled), rest = scaled - low;
      const bool up = rest > 0.5 || (rest == 0.5 && std::fmod(low, 2.0) != 0);
      return (low + (up ? 1 : 0)) * unit;
    }
  }
}

// Rounds to a binary format with `digits` significant bits and least exponent `least`.
inline double round_float(double value, int digits, int least, RoundMode mode) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), least);
  return round_to(value, std::ldexp(1.0, exponent - digits + 1), mode);
}

inline uint16_t pack_half(double value, RoundMode mode) {
  const uint16_t sign = std::signbit(value) ? 0x8000u : 0;
  if (std::isnan(value)) return 0x7e00u;
  const double magnitude = std::fabs(round_float(value, 11, -14, mode));
  if (magnitude >= 65520.0 || std::isinf(magnitude) || magnitude > 65504.0) return sign | 0x7c00u;
  if (magnitude < std::ldexp(1.0, -14)) {
    return sign | static_cast<uint16_t>(std::ldexp(magnitude, 24));
  }
  const int exponent = std::ilogb(magnitude);
  const auto mantissa = static_cast<uint16_t>(std::ldexp(magnitude, 10 - exponent)) & 0x3ffu;
  return sign | static_cast<uint16_t>((exponent + 15) << 10) | mantissa;
}

inline uint16_t pack_bfloat16(float value, RoundMode mode) {
  const uint32_t bits = float_to_bits(value);
  if (std::isnan(value)) return 0x7fc0u;
  if (std::isinf(value)) return static_cast<uint16_t>(bits >> 16);
  const uint32_t rest = bits & 0xffffu;
  uint32_t kept = bits >> 16;
  const bool negative = (bits >> 31) != 0;
  bool up = false;
  switch (mode) {
    case RoundMode::CAST_FLOOR:
      up = negative && rest != 0;
      break;
    case RoundMode::CAST_CEIL:
      up = !negative && rest != 0;
      break;
    case RoundMode::CAST_ROUND:
      up = rest >= 0x8000u;
      break;
    case RoundMode::CAST_TRUNC:
      break;
    default:
      up = rest > 0x8000u || (rest == 0x8000u && (kept & 1u) != 0);
      break;
  }
  return static_cast<uint16_t>(kept + (up ? 1 : 0));
}

inline float bfloat16_to_float(bfloat16_t value) {
  return bits_to_float(static_cast<uint32_t>(value.bits) << 16);
}

// Which modes a conversion has, as bits of RoundMode; 0: there is no such conversion.
constexpr unsigned mode_bit(RoundMode mode) { return 1u << static_cast<unsigned>(mode); }
constexpr unsigned kNone = mode_bit(RoundMode::CAST_NONE);
constexpr unsigned kFive = mode_bit(RoundMode::CAST_RINT) | mode_bit(RoundMode::CAST_FLOOR) |
                           mode_bit(RoundMode::CAST_CEIL) | mode_bit(RoundMode::CAST_ROUND) |
                           mode_bit(RoundMode::CAST_TRUNC);
constexpr unsigned kOdd = mode_bit(RoundMode::CAST_ODD);

template <typename D, typename S, typename D2, typename S2>
constexpr bool same_pair = std::is_same<D, D2>::value && std::is_same<S, S2>::value;

template <typename D, typename S>
constexpr unsigned cast_modes() {
  if (same_pair<D, S, half, int8_t> || same_pair<D, S, half, uint8_t>) return kNone;
  if (same_pair<D, S, half, int16_t>) return kFive | kNone;
  if (same_pair<D, S, float, int16_t>) return kNone;
  if (same_pair<D, S, int8_t, half> || same_pair<D, S, uint8_t, half>) return kFive | kNone;
  if (same_pair<D, S, int16_t, half> || same_pair<D, S, int32_t, half>) return kFive;
  if (same_pair<D, S, float, half> || same_pair<D, S, float, bfloat16_t>) return kNone;
  if (same_pair<D, S, int32_t, bfloat16_t>) return kFive;
  if (same_pair<D, S, int16_t, int32_t> || same_pair<D, S, int64_t, int32_t>) return kNone;
  if (same_pair<D, S, float, int32_t>) return kFive | kNone;
  if (same_pair<D, S, half, float>) return kFive | kOdd | kNone;
  if (same_pair<D, S, int16_t, float> || same_pair<D, S, bfloat16_t, float>) return kFive;
  if (same_pair<D, S, int32_t, float> || same_pair<D, S, float, float>) return kFive;
  if (same_pair<D, S, int64_t, float> || same_pair<D, S, float, int64_t>) return kFive;
  if (same_pair<D, S, int32_t, int64_t>) return kNone;
  return 0;
}

template <typename T>
double to_wide(T value) {
  if constexpr (std::is_same<T, half>::value) {
    return half_to_float(value.bits);
  } else if constexpr (std::is_same<T, bfloat16_t>::value) {
    return bfloat16_to_float(value);
  } else {
    return static_cast<double>(value);
  }
}

// Out of range saturates; NaN becomes 0.
template <typename D>
D to_integer(double value, RoundMode mode) {
  if (std::isnan(value)) return 0;
  const double whole = round_to(value, 1.0, mode);
  if (whole >= static_cast<double>(std::numeric_limits<D>::max())) {
    return std::numeric_limits<D>::max();
  }
  if (whole <= static_cast<double>(std::numeric_limits<D>::min())) {
    return std::numeric_limits<D>::min();
  }
  return static_cast<D>(whole);
}

template <typename D, typename S>
D cast_one(S value, RoundMode mode) {
  if constexpr (same_pair<D, S, int32_t, int64_t> || same_pair<D, S, int16_t, int32_t>) {
    const S low = std::numeric_limits<D>::min(), high = std::numeric_limits<D>::max();
    return static_cast<D>(value < low ? low : value > high ? high : value);
  } else if constexpr (same_pair<D, S, int64_t, int32_t>) {
    return value;
  } else if constexpr (same_pair<D, S, bfloat16_t, float>) {
    bfloat16_t result;
    result.bits = pack_bfloat16(value, mode);
    return result;
  } else if constexpr (std::is_same<D, half>::value) {
    half result;
    result.bits = pack_half(to_wide(value), mode);
    return result;
  } else if constexpr (std::is_integral<D>::value) {
    return to_integer<D>(to_wide(value), mode);
  } else if constexpr (std::is_same<S, float>::value) {
    return static_cast<float>(round_to(value, 1.0, mode));
  } else if constexpr (same_pair<D, S, float, int64_t> || same_pair<D, S, float, int32_t>) {
    return static_cast<float>(round_float(to_wide(value), 24, -126, mode));
  } else {
    return static_cast<float>(to_wide(value));
  }
}

template <typename D, typename S>
auto cast_kernel(const Op& op, RoundMode mode) {
  EMULATOR_REQUIRE(op, (cast_modes<D, S>() & mode_bit(mode)) != 0, Kind::kUnsupported,
               std::string(type_name<S>()) + " to " + type_name<D>() +
                   " does not have rounding mode " + num(static_cast<uint64_t>(mode)),
               "see the table of Cast for Atlas A2");
  return [mode](S value) { return cast_one<D, S>(value, mode); };
}

}  // namespace emulator

inline half::half(float value) : bits(emulator::pack_half(value, AscendC::RoundMode::CAST_RINT)) {}

namespace AscendC {

#define EMULATOR_CASTABLE \
  static_assert(emulator::cast_modes<D, S>() != 0, "Cast: no such conversion on Atlas A2/A3")

template <typename D, typename S>
void Cast(const LocalTensor<D>& dst, const LocalTensor<S>& src, const RoundMode& roundMode,
          const uint32_t count, EMULATOR_SITE) {
  EMULATOR_CASTABLE;
  emulator::Op op("Cast", PIPE_V, site);
  emulator::unary_n(op, dst, src, count, emulator::cast_kernel<D, S>(op, roundMode));
}

template <typename D, typename S, bool isSetMask = true>
void Cast(const LocalTensor<D>& dst, const LocalTensor<S>& src, const RoundMode& roundMode,
          const uint64_t mask, int32_t repeatTime, const UnaryRepeatParams& params, EMULATOR_SITE) {
  EMULATOR_CASTABLE;
  emulator::Op op("Cast", PIPE_V, site);
  const auto lanes = emulator::first_lanes(op, mask, emulator::lanes_of<D, S>);
  emulator::unary_strided(op, dst, src, lanes, repeatTime, emulator::dst_stride(params),
                      emulator::src_stride(params), emulator::cast_kernel<D, S>(op, roundMode));
}

// Scalars.
inline float ToFloat(const bfloat16_t& value) { return emulator::bfloat16_to_float(value); }
inline bfloat16_t ToBfloat16(const float& value) {
  return emulator::cast_one<bfloat16_t, float>(value, RoundMode::CAST_RINT);
}
inline float Cast(const bfloat16_t& value) { return ToFloat(value); }
template <typename S, typename D, RoundMode roundMode>
D Cast(S value) {
  static_assert(std::is_same<S, float>::value && emulator::is_one_of<D, half, int32_t, bfloat16_t>,
                "scalar Cast: float to half, int32_t or bfloat16_t");
  return emulator::cast_one<D, S>(value, roundMode);
}

}  // namespace AscendC
