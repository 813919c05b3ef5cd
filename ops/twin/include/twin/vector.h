// Arithmetic, logic and filling, element by element.
#pragma once
#include "elementwise.h"

namespace twin {

// Integers wrap around.
template <typename T, typename F>
T wrapped(T a, T b, F f) {
  if constexpr (std::is_integral<T>::value) {
    using U = std::make_unsigned_t<T>;
    using Wide = std::common_type_t<U, uint32_t>;
    return static_cast<T>(static_cast<U>(f(static_cast<Wide>(static_cast<U>(a)),
                                           static_cast<Wide>(static_cast<U>(b)))));
  } else {
    return f(a, b);
  }
}

struct AddOf {
  template <typename T>
  static T run(T a, T b, bool) { return wrapped(a, b, [](auto x, auto y) { return x + y; }); }
};
struct SubOf {
  template <typename T>
  static T run(T a, T b, bool) { return wrapped(a, b, [](auto x, auto y) { return x - y; }); }
};
struct MulOf {
  template <typename T>
  static T run(T a, T b, bool) { return wrapped(a, b, [](auto x, auto y) { return x * y; }); }
};
struct DivOf {
  template <typename T>
  static T run(T a, T b, bool) { return a / b; }
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
  static T run(T a, T b, bool) { return static_cast<T>(a & b); }
};
struct OrOf {
  template <typename T>
  static T run(T a, T b, bool) { return static_cast<T>(a | b); }
};

struct AbsOf {
  template <typename T>
  static T run(T a) { return std::fabs(a); }
};
struct ExpOf {
  template <typename T>
  static T run(T a) { return std::exp(a); }
};
struct LnOf {
  template <typename T>
  static T run(T a) { return std::log(a); }
};
struct SqrtOf {
  template <typename T>
  static T run(T a) { return std::sqrt(a); }
};
// The device's reciprocals are approximate ("errors exceed 1e-4; use Div"): here 12 bits are kept.
inline float coarse(float exact) {
  return std::isfinite(exact) ? bits_to_float(float_to_bits(exact) & 0xfffff800u) : exact;
}
struct ReciprocalOf {
  template <typename T>
  static T run(T a) { return coarse(1.0f / a); }
};
struct RsqrtOf {
  template <typename T>
  static T run(T a) { return coarse(1.0f / std::sqrt(a)); }
};
struct ReluOf {
  template <typename T>
  static T run(T a) { return a > T(0) || a != a ? a : T(0); }
};
struct NotOf {
  template <typename T>
  static T run(T a) { return static_cast<T>(~a); }
};

template <typename F, typename T>
auto binary_kernel(const Op& op) {
  const bool nan_wins = propagates_nan(op);
  return [nan_wins](T a, T b) -> T {
    return narrow<T>(F::template run<Computed<T>>(a, b, nan_wins));
  };
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

}  // namespace twin

namespace AscendC {

#define TWIN_TYPES(Name, ...)                                   \
  static_assert(twin::is_one_of<T, __VA_ARGS__>,                \
                #Name ": type not supported on Atlas A2/A3 (only " #__VA_ARGS__ ")")

#define TWIN_BINARY(Name, Function, ...)                                                       \
  template <typename T>                                                                        \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, \
            const int32_t& count, TWIN_SITE) {                                                 \
    TWIN_TYPES(Name, __VA_ARGS__);                                                             \
    twin::Op op(#Name, PIPE_V, site);                                                          \
    twin::binary_n(op, dst, src0, src1, count, twin::binary_kernel<twin::Function, T>(op));    \
  }                                                                                            \
  template <typename T, bool isSetMask = true>                                                 \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, \
            uint64_t mask, int32_t repeatTime, const BinaryRepeatParams& params, TWIN_SITE) {  \
    TWIN_TYPES(Name, __VA_ARGS__);                                                             \
    twin::Op op(#Name, PIPE_V, site);                                                          \
    const auto lanes = twin::first_lanes(op, mask, twin::lanes_of<T, T>);                      \
    twin::binary_strided(op, dst, src0, src1, lanes, repeatTime, params,                       \
                         twin::binary_kernel<twin::Function, T>(op));                          \
  }                                                                                            \
  template <typename T, bool isSetMask = true>                                                 \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, \
            const uint64_t mask[], int32_t repeatTime, const BinaryRepeatParams& params,       \
            TWIN_SITE) {                                                                       \
    TWIN_TYPES(Name, __VA_ARGS__);                                                             \
    twin::Op op(#Name, PIPE_V, site);                                                          \
    const auto lanes = twin::bit_lanes(op, mask, twin::lanes_of<T, T>);                        \
    twin::binary_strided(op, dst, src0, src1, lanes, repeatTime, params,                       \
                         twin::binary_kernel<twin::Function, T>(op));                          \
  }

// Kernel is an expression over `op` and, in scalar forms, `scalarValue`.
#define TWIN_MAP(Name, Scalar, Check, Kernel, ...)                                          \
  template <typename T, bool isSetMask = true>                                              \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src Scalar, const int32_t& count, \
            TWIN_SITE) {                                                                    \
    TWIN_TYPES(Name, __VA_ARGS__);                                                          \
    twin::Op op(#Name, PIPE_V, site);                                                       \
    Check;                                                                                  \
    twin::unary_n(op, dst, src, count, Kernel);                                             \
  }                                                                                         \
  template <typename T, bool isSetMask = true>                                              \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src Scalar, uint64_t mask,     \
            int32_t repeatTime, const UnaryRepeatParams& params, TWIN_SITE) {               \
    TWIN_TYPES(Name, __VA_ARGS__);                                                          \
    twin::Op op(#Name, PIPE_V, site);                                                       \
    Check;                                                                                  \
    const auto lanes = twin::first_lanes(op, mask, twin::lanes_of<T, T>);                   \
    twin::unary_strided(op, dst, src, lanes, repeatTime, twin::dst_stride(params),          \
                        twin::src_stride(params), Kernel);                                  \
  }                                                                                         \
  template <typename T, bool isSetMask = true>                                              \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src Scalar, const uint64_t mask[], \
            int32_t repeatTime, const UnaryRepeatParams& params, TWIN_SITE) {               \
    TWIN_TYPES(Name, __VA_ARGS__);                                                          \
    twin::Op op(#Name, PIPE_V, site);                                                       \
    Check;                                                                                  \
    const auto lanes = twin::bit_lanes(op, mask, twin::lanes_of<T, T>);                     \
    twin::unary_strided(op, dst, src, lanes, repeatTime, twin::dst_stride(params),          \
                        twin::src_stride(params), Kernel);                                  \
  }

#define TWIN_COMMA ,
#define TWIN_NO_CHECK static_cast<void>(0)
#define TWIN_UNARY(Name, Function, ...) \
  TWIN_MAP(Name, , TWIN_NO_CHECK, (twin::unary_kernel<twin::Function, T>()), __VA_ARGS__)
#define TWIN_SCALAR(Name, Function, ...)                 \
  TWIN_MAP(Name, TWIN_COMMA const T& scalarValue, TWIN_NO_CHECK, \
           (twin::scalar_kernel<twin::Function, T>(op, scalarValue)), __VA_ARGS__)

TWIN_BINARY(Add, AddOf, int16_t, half, int32_t, float)
TWIN_BINARY(Sub, SubOf, int16_t, half, int32_t, float)
TWIN_BINARY(Mul, MulOf, int16_t, half, int32_t, float)
TWIN_BINARY(Div, DivOf, half, float)
TWIN_BINARY(Max, MaxOf, int16_t, half, int32_t, float)
TWIN_BINARY(Min, MinOf, int16_t, half, int32_t, float)
// 32-bit integers go through ReinterpretCast to 16 bits.
TWIN_BINARY(And, AndOf, int16_t, uint16_t)
TWIN_BINARY(Or, OrOf, int16_t, uint16_t)

TWIN_UNARY(Abs, AbsOf, half, float)
TWIN_UNARY(Exp, ExpOf, half, float)
TWIN_UNARY(Ln, LnOf, half, float)
TWIN_UNARY(Sqrt, SqrtOf, half, float)
TWIN_UNARY(Rsqrt, RsqrtOf, half, float)
TWIN_UNARY(Reciprocal, ReciprocalOf, half, float)
TWIN_UNARY(Relu, ReluOf, half, int32_t, float)
TWIN_UNARY(Not, NotOf, int16_t, uint16_t)

TWIN_SCALAR(Adds, AddOf, int16_t, half, int32_t, float)
TWIN_SCALAR(Muls, MulOf, int16_t, half, int32_t, float)
TWIN_SCALAR(Maxs, MaxOf, int16_t, half, int32_t, float)
TWIN_SCALAR(Mins, MinOf, int16_t, half, int32_t, float)

}  // namespace AscendC

namespace twin {

template <typename T>
void check_shift(const Op& op, T shift) {
  op.require(shift >= T(0) && static_cast<uint64_t>(shift) <= 8 * sizeof(T), Kind::kArgument,
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

}  // namespace twin

namespace AscendC {

TWIN_MAP(ShiftLeft, TWIN_COMMA const T& scalarValue, twin::check_shift(op, scalarValue),
         (twin::left_shift<T>(scalarValue)), int16_t, uint16_t, int32_t, uint32_t)
TWIN_MAP(ShiftRight, TWIN_COMMA const T& scalarValue, twin::check_shift(op, scalarValue),
         (twin::right_shift<T>(scalarValue)), int16_t, uint16_t, int32_t, uint32_t)

// dst += src * scalar
template <typename T>
void Axpy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue,
          const int32_t& count, TWIN_SITE) {
  TWIN_TYPES(Axpy, half, float);
  twin::Op op("Axpy", PIPE_V, site);
  twin::binary_n(op, dst, src, dst, count, [scalarValue](T a, T d) -> T {
    return twin::narrow<T>(twin::Computed<T>(a) * twin::Computed<T>(scalarValue) + twin::Computed<T>(d));
  });
}

// dst += src0 * src1
template <typename T>
void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
               const int32_t& count, TWIN_SITE) {
  TWIN_TYPES(MulAddDst, half, float);
  twin::Op op("MulAddDst", PIPE_V, site);
  const uint64_t n = twin::check_count(op, count);
  if (n == 0) return;
  const T* a = twin::read_all(op, src0, n, "src0");
  const T* b = twin::read_all(op, src1, n, "src1");
  const T* before = twin::read_all(op, dst, n, "dst");
  T* to = twin::write_all(op, dst, n, "dst");
  for (uint64_t i = 0; i < n; ++i) {
    to[i] = twin::narrow<T>(twin::Computed<T>(a[i]) * twin::Computed<T>(b[i]) +
                            twin::Computed<T>(before[i]));
  }
  op.core.vector_bytes += 3 * n * sizeof(T);
}

template <typename T>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, const int32_t& count, TWIN_SITE) {
  TWIN_TYPES(Duplicate, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float);
  twin::Op op("Duplicate", PIPE_V, site);
  const uint64_t n = twin::check_count(op, count);
  if (n == 0) return;
  std::fill_n(twin::write_all(op, dst, n, "dst"), n, scalarValue);
  op.core.vector_bytes += n * sizeof(T);
}

template <typename T>
void CreateVecIndex(LocalTensor<T> dst, const T& firstValue, uint32_t count, TWIN_SITE) {
  TWIN_TYPES(CreateVecIndex, int16_t, half, int32_t, float);
  twin::Op op("CreateVecIndex", PIPE_V, site);
  if (count == 0) return;
  T* to = twin::write_all(op, dst, count, "dst");
  for (uint32_t i = 0; i < count; ++i) {
    to[i] = twin::narrow<T>(twin::Computed<T>(firstValue) + static_cast<twin::Computed<T>>(i));
  }
  op.core.vector_bytes += static_cast<uint64_t>(count) * sizeof(T);
}

template <typename T>
void ArithProgression(const LocalTensor<T>& dst, const T firstValue, const T diffValue,
                      const int32_t count, TWIN_SITE) {
  TWIN_TYPES(ArithProgression, int16_t, half, int32_t, float);
  twin::Op op("ArithProgression", PIPE_V, site);
  const uint64_t n = twin::check_count(op, count);
  if (n == 0) return;
  T* to = twin::write_all(op, dst, n, "dst");
  for (uint64_t i = 0; i < n; ++i) {
    to[i] = twin::narrow<T>(twin::Computed<T>(firstValue) +
                            static_cast<twin::Computed<T>>(i) * twin::Computed<T>(diffValue));
  }
  op.core.vector_bytes += n * sizeof(T);
}

// Each of 8 elements a repeat fills one data block.
template <typename T>
void Brcb(const LocalTensor<T>& dst, const LocalTensor<T>& src, int32_t repeatTime,
          const BrcbRepeatParams& params, TWIN_SITE) {
  TWIN_TYPES(Brcb, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float);
  twin::Op op("Brcb", PIPE_V, site);
  twin::check_repeat(op, repeatTime);
  twin::check_start(op, dst.ref(), "dst");
  op.require(params.dstBlkStride != 0, twin::Kind::kArgument, "dstBlkStride 0", "1 or more");
  const uint64_t n = 8ull * static_cast<uint64_t>(repeatTime);
  const T* from = twin::read_all(op, src, n, "src");
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t block = i / 8 * params.dstRepStride + i % 8 * params.dstBlkStride;
    auto* to = reinterpret_cast<T*>(
        op.write(dst.ref(), block * twin::kBlockBytes, twin::kBlockBytes, "dst"));
    std::fill_n(to, twin::kBlockBytes / sizeof(T), from[i]);
  }
  op.core.vector_bytes += n * sizeof(T);
}

}  // namespace AscendC
