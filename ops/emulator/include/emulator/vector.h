// Arithmetic and logic, element by element.
#pragma once
#include "functions.h"

namespace AscendC {

#define EMULATOR_TYPES(Name, ...)                    \
  static_assert(emulator::is_one_of<T, __VA_ARGS__>, \
                #Name ": type not supported on Atlas A2/A3 (only " #__VA_ARGS__ ")")

#define EMULATOR_BINARY(Name, Function, ...)                                                       \
  template <typename T>                                                                        \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, \
            const int32_t& count, EMULATOR_SITE) {                                                 \
    EMULATOR_TYPES(Name, __VA_ARGS__);                                                             \
    emulator::Op op(#Name, PIPE_V, site);                                                          \
    emulator::binary_n(op, dst, src0, src1, count, emulator::binary_kernel<emulator::Function, T>(op));    \
  }                                                                                            \
  template <typename T, bool isSetMask = true>                                                 \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, \
            uint64_t mask, int32_t repeatTime, const BinaryRepeatParams& params, EMULATOR_SITE) {  \
    EMULATOR_TYPES(Name, __VA_ARGS__);                                                             \
    emulator::Op op(#Name, PIPE_V, site);                                                          \
    const auto lanes = emulator::first_lanes(op, mask, emulator::lanes_of<T, T>);                      \
    emulator::binary_strided(op, dst, src0, src1, lanes, repeatTime, params,                       \
                         emulator::binary_kernel<emulator::Function, T>(op));                          \
  }                                                                                            \
  template <typename T, bool isSetMask = true>                                                 \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, \
            const uint64_t mask[], int32_t repeatTime, const BinaryRepeatParams& params,       \
            EMULATOR_SITE) {                                                                       \
    EMULATOR_TYPES(Name, __VA_ARGS__);                                                             \
    emulator::Op op(#Name, PIPE_V, site);                                                          \
    const auto lanes = emulator::bit_lanes(op, mask, emulator::lanes_of<T, T>);                        \
    emulator::binary_strided(op, dst, src0, src1, lanes, repeatTime, params,                       \
                         emulator::binary_kernel<emulator::Function, T>(op));                          \
  }

// Kernel is an expression over `op` and, in scalar forms, `scalarValue`.
#define EMULATOR_MAP(Name, Scalar, Check, Kernel, ...)                                              \
  template <typename T, bool isSetMask = true>                                                  \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src Scalar, const int32_t& count,  \
            EMULATOR_SITE) {                                                                        \
    EMULATOR_TYPES(Name, __VA_ARGS__);                                                              \
    emulator::Op op(#Name, PIPE_V, site);                                                           \
    Check;                                                                                      \
    emulator::unary_n(op, dst, src, count, Kernel);                                                 \
  }                                                                                             \
  template <typename T, bool isSetMask = true>                                                  \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src Scalar, uint64_t mask,         \
            int32_t repeatTime, const UnaryRepeatParams& params, EMULATOR_SITE) {                   \
    EMULATOR_TYPES(Name, __VA_ARGS__);                                                              \
    emulator::Op op(#Name, PIPE_V, site);                                                           \
    Check;                                                                                      \
    const auto lanes = emulator::first_lanes(op, mask, emulator::lanes_of<T, T>);                       \
    emulator::unary_strided(op, dst, src, lanes, repeatTime, emulator::dst_stride(params),              \
                        emulator::src_stride(params), Kernel);                                      \
  }                                                                                             \
  template <typename T, bool isSetMask = true>                                                  \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src Scalar, const uint64_t mask[], \
            int32_t repeatTime, const UnaryRepeatParams& params, EMULATOR_SITE) {                   \
    EMULATOR_TYPES(Name, __VA_ARGS__);                                                              \
    emulator::Op op(#Name, PIPE_V, site);                                                           \
    Check;                                                                                      \
    const auto lanes = emulator::bit_lanes(op, mask, emulator::lanes_of<T, T>);                         \
    emulator::unary_strided(op, dst, src, lanes, repeatTime, emulator::dst_stride(params),              \
                        emulator::src_stride(params), Kernel);                                      \
  }

#define EMULATOR_COMMA ,
#define EMULATOR_NO_CHECK static_cast<void>(0)
#define EMULATOR_UNARY(Name, Function, ...) \
  EMULATOR_MAP(Name, , EMULATOR_NO_CHECK, (emulator::unary_kernel<emulator::Function, T>()), __VA_ARGS__)
#define EMULATOR_SCALAR(Name, Function, ...)                         \
  EMULATOR_MAP(Name, EMULATOR_COMMA const T& scalarValue, EMULATOR_NO_CHECK, \
           (emulator::scalar_kernel<emulator::Function, T>(op, scalarValue)), __VA_ARGS__)

EMULATOR_BINARY(Add, AddOf, int16_t, half, int32_t, float)
EMULATOR_BINARY(Sub, SubOf, int16_t, half, int32_t, float)
EMULATOR_BINARY(Mul, MulOf, int16_t, half, int32_t, float)
EMULATOR_BINARY(Div, DivOf, half, float)
EMULATOR_BINARY(Max, MaxOf, int16_t, half, int32_t, float)
EMULATOR_BINARY(Min, MinOf, int16_t, half, int32_t, float)
// 32-bit integers go through ReinterpretCast to 16 bits.
EMULATOR_BINARY(And, AndOf, int16_t, uint16_t)
EMULATOR_BINARY(Or, OrOf, int16_t, uint16_t)

EMULATOR_UNARY(Abs, AbsOf, half, float)
EMULATOR_UNARY(Exp, ExpOf, half, float)
EMULATOR_UNARY(Ln, LnOf, half, float)
EMULATOR_UNARY(Sqrt, SqrtOf, half, float)
EMULATOR_UNARY(Rsqrt, RsqrtOf, half, float)
EMULATOR_UNARY(Reciprocal, ReciprocalOf, half, float)
EMULATOR_UNARY(Relu, ReluOf, half, int32_t, float)
EMULATOR_UNARY(Not, NotOf, int16_t, uint16_t)

EMULATOR_SCALAR(Adds, AddOf, int16_t, half, int32_t, float)
EMULATOR_SCALAR(Muls, MulOf, int16_t, half, int32_t, float)
EMULATOR_SCALAR(Maxs, MaxOf, int16_t, half, int32_t, float)
EMULATOR_SCALAR(Mins, MinOf, int16_t, half, int32_t, float)

EMULATOR_MAP(ShiftLeft, EMULATOR_COMMA const T& scalarValue, emulator::check_shift(op, scalarValue),
         (emulator::left_shift<T>(scalarValue)), int16_t, uint16_t, int32_t, uint32_t)
EMULATOR_MAP(ShiftRight, EMULATOR_COMMA const T& scalarValue, emulator::check_shift(op, scalarValue),
         (emulator::right_shift<T>(scalarValue)), int16_t, uint16_t, int32_t, uint32_t)

// dst += src * scalar
template <typename T>
void Axpy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue,
          const int32_t& count, EMULATOR_SITE) {
  EMULATOR_TYPES(Axpy, half, float);
  emulator::Op op("Axpy", PIPE_V, site);
  emulator::binary_n(op, dst, src, dst, count, [scalarValue](T a, T d) -> T {
    return emulator::narrow<T>(emulator::Computed<T>(a) * emulator::Computed<T>(scalarValue) +
                           emulator::Computed<T>(d));
  });
}

// dst += src0 * src1
template <typename T>
void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
               const int32_t& count, EMULATOR_SITE) {
  EMULATOR_TYPES(MulAddDst, half, float);
  emulator::Op op("MulAddDst", PIPE_V, site);
  const uint64_t n = emulator::check_count(op, count);
  if (n == 0) return;
  const T* a = emulator::read_all(op, src0, n, "src0");
  const T* b = emulator::read_all(op, src1, n, "src1");
  const T* before = emulator::read_all(op, dst, n, "dst");
  T* to = emulator::write_all(op, dst, n, "dst");
  for (uint64_t i = 0; i < n; ++i) {
    to[i] = emulator::narrow<T>(emulator::Computed<T>(a[i]) * emulator::Computed<T>(b[i]) +
                            emulator::Computed<T>(before[i]));
  }
  op.core.vector_bytes += 3 * n * sizeof(T);
}

}  // namespace AscendC
