// What the element-wise instructions compute of one element.
#pragma once
#include "elementwise.h"

namespace emulator {

// Integers wrap around.
template <typename T, typename F>
T wrapped(T a, T b, F f) {
  if constexpr (std::is_integral<T>::value) {
    using U = std::make_unsigned_t<T>;
    using Wide = std::common_type_t<U, uint32_t>;
    return static_cast<T>(static_cast<U>(
        f(static_cast<Wide>(static_cast<U>(a)), static_cast<Wide>(static_cast<U>(b)))));
  } else {
    return f(a, b);
  }
}

struct AddOf {
  template <typename T>
  static T run(T a, T b, bool) {
    return wrapped(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct SubOf {
  template <typename T>
  static T run(T a, T b, bool) {
    return wrapped(a, b, [](auto x, auto y) { return x - y; });
  }
};
struct MulOf {
  template <typename T>
  static T run(T a, T b, bool) {
    return wrapped(a, b, [](auto x, auto y) { return x * y; });
  }
};
struct DivOf {
  template <typename T>
  static T run(T a, T b, bool) {
    return a / b;
  }
};
struct MaxOf {
  template <typename T>
  static T run(T a, T b, bool nan_wins) {
    if (a != a) return nan_wins ? a : b;
    if (b != b) return nan_wins ? b : a;
    return a > b ? a : b;
  }
};
struct MinOf {
  template <typename T>
  static T run(T a, T b, bool nan_wins) {
    if (a != a) return nan_wins ? a : b;
    if (b != b) return nan_wins ? b : a;
    return a < b ? a : b;
  }
};
struct AndOf {
  template <typename T>
  static T run(T a, T b, bool) {
    return static_cast<T>(a & b);
  }
};
struct OrOf {
  template <typename T>
  static T run(T a, T b, bool) {
    return static_cast<T>(a | b);
  }
};

struct AbsOf {
  template <typename T>
  static T run(T a) {
    return std::fabs(a);
  }
};
struct ExpOf {
  template <typename T>
  static T run(T a) {
    return std::exp(a);
  }
};
struct LnOf {
  template <typename T>
  static T run(T a) {
    return std::log(a);
  }
};
struct SqrtOf {
  template <typename T>
  static T run(T a) {
    return std::sqrt(a);
  }
};
// The device's reciprocals are approximate ("errors exceed 1e-4; use Div"): here 12 bits are kept.
inline float coarse(float exact) {
  return std::isfinite(exact) ? bits_to_float(float_to_bits(exact) & 0xfffff800u) : exact;
}
struct ReciprocalOf {
  template <typename T>
  static T run(T a) {
    return coarse(1.0f / a);
  }
};
struct RsqrtOf {
  template <typename T>
  static T run(T a) {
    return coarse(1.0f / std::sqrt(a));
  }
};
struct ReluOf {
  template <typename T>
  static T run(T a) {
    return a > T(0) || a != a ? a : T(0);
  }
};
struct NotOf {
  template <typename T>
  static T run(T a) {
    return static_cast<T>(~a);
  }
};

template <typename F, typename T>
auto binary_kernel(const Op& op) {
  const bool nan_wins = propagates_nan(op);
  return
      [nan_wins](T a, T b) -> T { return narrow<T>(F::template run<Computed<T>>(a, b, nan_wins)); };
}
template <typename F, typename T>
auto scalar_kernel(const Op& op, T scalar) {
  const bool nan_wins = propagates_nan(op);
  return [nan_wins, scalar](T a) -> T {
    return narrow<T>(F::template run<Computed<T>>(a, scalar, nan_wins));
  };
}
template <typename F, typename T>
auto unary_kernel() {
  return [](T a) -> T { return narrow<T>(F::template run<Computed<T>>(a)); };
}

template <typename T>
void check_shift(const Op& op, T shift) {
  EMULATOR_REQUIRE(op, shift >= T(0) && static_cast<uint64_t>(shift) <= 8 * sizeof(T), Kind::kArgument,
               "a shift by " + std::to_string(shift), "0 to " + num(8 * sizeof(T)));
}
template <typename T>
auto left_shift(T shift) {
  using U = std::make_unsigned_t<T>;
  return [shift](T a) -> T {
    return shift >= T(8 * sizeof(T)) ? T(0) : static_cast<T>(static_cast<U>(a) << shift);
  };
}
// Arithmetic for signed types, logical for unsigned ones.
template <typename T>
auto right_shift(T shift) {
  return [shift](T a) -> T {
    if (shift >= T(8 * sizeof(T))) return a < T(0) ? T(-1) : T(0);
    return static_cast<T>(a >> shift);
  };
}

}  // namespace emulator
