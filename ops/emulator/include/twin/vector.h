// Arithmetic and logic, element by element.
#pragma once
#include "functions.h"

namespace AscendC {

#define TWIN_TYPES(Name, ...)                    \
  static_assert(twin::is_one_of<T, __VA_ARGS__>, \
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
#define TWIN_MAP(Name, Scalar, Check, Kernel, ...)                                              \
  template <typename T, bool isSetMask = true>                                                  \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src Scalar, const int32_t& count,  \
            TWIN_SITE) {                                                                        \
    TWIN_TYPES(Name, __VA_ARGS__);                                                              \
    twin::Op op(#Name, PIPE_V, site);                                                           \
    Check;                                                                                      \
    twin::unary_n(op, dst, src, count, Kernel);                                                 \
  }                                                                                             \
  template <typename T, bool isSetMask = true>                                                  \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src Scalar, uint64_t mask,         \
            int32_t repeatTime, const UnaryRepeatParams& params, TWIN_SITE) {                   \
    TWIN_TYPES(Name, __VA_ARGS__);                                                              \
    twin::Op op(#Name, PIPE_V, site);                                                           \
    Check;                                                                                      \
    const auto lanes = twin::first_lanes(op, mask, twin::lanes_of<T, T>);                       \
    twin::unary_strided(op, dst, src, lanes, repeatTime, twin::dst_stride(params),              \
                        twin::src_stride(params), Kernel);                                      \
  }                                                                                             \
  template <typename T, bool isSetMask = true>                                                  \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src Scalar, const uint64_t mask[], \
            int32_t repeatTime, const UnaryRepeatParams& params, TWIN_SITE) {                   \
    TWIN_TYPES(Name, __VA_ARGS__);                                                              \
    twin::Op op(#Name, PIPE_V, site);                                                           \
    Check;                                                                                      \
    const auto lanes = twin::bit_lanes(op, mask, twin::lanes_of<T, T>);                         \
    twin::unary_strided(op, dst, src, lanes, repeatTime, twin::dst_stride(params),              \
                        twin::src_stride(params), Kernel);                                      \
  }

#define TWIN_COMMA ,
#define TWIN_NO_CHECK static_cast<void>(0)
#define TWIN_UNARY(Name, Function, ...) \
  TWIN_MAP(Name, , TWIN_NO_CHECK, (twin::unary_kernel<twin::Function, T>()), __VA_ARGS__)
#define TWIN_SCALAR(Name, Function, ...)                         \
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
    return twin::narrow<T>(twin::Computed<T>(a) * twin::Computed<T>(scalarValue) +
                           twin::Computed<T>(d));
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

}  // namespace AscendC
