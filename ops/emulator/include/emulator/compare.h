// Comparisons into bit masks, and selection by them.
#pragma once
#include "fill.h"

namespace emulator {

template <typename T>
bool compare_one(AscendC::CMPMODE mode, T a, T b) {
  switch (mode) {
    case AscendC::CMPMODE::LT:
      return a < b;
    case AscendC::CMPMODE::GT:
      return a > b;
    case AscendC::CMPMODE::EQ:
      return a == b;
    case AscendC::CMPMODE::LE:
      return a <= b;
    case AscendC::CMPMODE::GE:
      return a >= b;
    default:
      return a != b;
  }
}

template <typename T>
void check_compare(const Op& op, AscendC::CMPMODE mode, uint64_t count) {
  EMULATOR_REQUIRE(op, !(std::is_same<T, int32_t>::value) || mode == AscendC::CMPMODE::EQ,
               Kind::kUnsupported, "int32_t is compared for EQ only",
               "compare as float, or subtract and compare");
  EMULATOR_REQUIRE(op, count * sizeof(T) % kRepeatBytes == 0, Kind::kAlignment,
               num(count) + " elements are " + num(count * sizeof(T)) +
                   " bytes, not a multiple of 256; the rest would be left out",
               "fill up to 256 bytes with a neutral value");
}

template <typename T, typename U, typename Right>
void compare_into(const Op& op, const AscendC::LocalTensor<U>& dst, const T* a, Right right,
                  AscendC::CMPMODE mode, uint64_t count) {
  auto* bits = op.write(dst.ref(), 0, count / 8, "dst");
  std::vector<uint8_t> result(count / 8);
  for (uint64_t i = 0; i < count; ++i) {
    if (compare_one<Computed<T>>(mode, a[i], right(i))) result[i / 8] |= 1u << (i % 8);
  }
  std::memcpy(bits, result.data(), result.size());
}

}  // namespace emulator

namespace AscendC {

template <typename T, typename U>
void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
             CMPMODE cmpMode, uint32_t count, EMULATOR_SITE) {
  EMULATOR_TYPES(Compare, half, float, int32_t);
  static_assert(emulator::is_one_of<U, int8_t, uint8_t>, "Compare: dst is int8_t or uint8_t");
  emulator::Op op("Compare", PIPE_V, site);
  emulator::check_compare<T>(op, cmpMode, count);
  if (count == 0) return;
  const T* a = emulator::read_all(op, src0, count, "src0");
  const T* b = emulator::read_all(op, src1, count, "src1");
  emulator::compare_into(op, dst, a, [b](uint64_t i) { return b[i]; }, cmpMode, count);
  op.core.vector_bytes += 2ull * count * sizeof(T);
}

// `Compares` in newer releases, `CompareScalar` in older ones.
template <typename T, typename U>
void Compares(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const T src1Scalar,
              CMPMODE cmpMode, uint32_t count, EMULATOR_SITE) {
  EMULATOR_TYPES(CompareScalar, half, float, int32_t);
  static_assert(emulator::is_one_of<U, uint8_t>, "CompareScalar: dst is uint8_t");
  emulator::Op op("CompareScalar", PIPE_V, site);
  emulator::check_compare<T>(op, cmpMode, count);
  if (count == 0) return;
  const T* a = emulator::read_all(op, src0, count, "src0");
  emulator::compare_into(op, dst, a, [src1Scalar](uint64_t) { return src1Scalar; }, cmpMode, count);
  op.core.vector_bytes += static_cast<uint64_t>(count) * sizeof(T);
}
template <typename T, typename U>
void CompareScalar(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const T src1Scalar,
                   CMPMODE cmpMode, uint32_t count, EMULATOR_SITE) {
  Compares(dst, src0, src1Scalar, cmpMode, count, site);
}

}  // namespace AscendC

namespace emulator {

// Modes 1 and 2 use the last 8 KiB of the unified buffer themselves.
inline void check_reserve(const Op& op) {
  constexpr uint32_t reserve = 8 * 1024;
  op.core.ub_reserved = reserve;
  EMULATOR_REQUIRE(op, op.core.ub_top + reserve <= kUbBytes, Kind::kUbOverflow,
               "this mode needs 8192 bytes of unified buffer for itself; " +
                   num(kUbBytes - op.core.ub_top) + " are left",
               "allocate at most 188416 bytes in a kernel that selects");
}

inline bool bit(const uint8_t* bits, uint64_t i) { return (bits[i / 8] >> (i % 8)) & 1; }

}  // namespace emulator

namespace AscendC {

template <typename T, typename U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0,
            T src1, SELMODE selMode, uint32_t count, EMULATOR_SITE) {
  EMULATOR_TYPES(Select, half, float);
  static_assert(emulator::is_one_of<U, uint8_t, uint16_t, uint32_t, uint64_t>, "Select: mask type");
  emulator::Op op("Select", PIPE_V, site);
  EMULATOR_REQUIRE(op, selMode == SELMODE::VSEL_TENSOR_SCALAR_MODE, emulator::Kind::kUnsupported,
               "a scalar operand in a mode for tensors", "VSEL_TENSOR_SCALAR_MODE");
  if (count == 0) return;
  emulator::check_reserve(op);
  emulator::check_overlap(op, dst, src0, count, "src0");
  const uint8_t* bits = op.read(selMask.ref(), 0, (count + 7) / 8, "selMask");
  const T* a = emulator::read_all(op, src0, count, "src0");
  T* to = emulator::write_all(op, dst, count, "dst");
  for (uint32_t i = 0; i < count; ++i) to[i] = emulator::bit(bits, i) ? a[i] : src1;
  op.core.vector_bytes += static_cast<uint64_t>(count) * sizeof(T);
}

template <typename T, typename U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0,
            const LocalTensor<T>& src1, SELMODE selMode, uint32_t count, EMULATOR_SITE) {
  EMULATOR_TYPES(Select, half, float);
  static_assert(emulator::is_one_of<U, uint8_t, uint16_t, uint32_t, uint64_t>, "Select: mask type");
  emulator::Op op("Select", PIPE_V, site);
  EMULATOR_REQUIRE(op, selMode != SELMODE::VSEL_TENSOR_SCALAR_MODE, emulator::Kind::kUnsupported,
               "a tensor operand in the mode for scalars",
               "VSEL_TENSOR_TENSOR_MODE or VSEL_CMPMASK_SPR");
  if (count == 0) return;
  // Mode 0 uses one repeat's bits for all repeats; mode 2 goes on through the mask.
  constexpr uint32_t per_repeat = emulator::kRepeatBytes / sizeof(T);
  const bool same_bits = selMode == SELMODE::VSEL_CMPMASK_SPR;
  if (!same_bits) emulator::check_reserve(op);
  emulator::check_overlap(op, dst, src0, count, "src0");
  emulator::check_overlap(op, dst, src1, count, "src1");
  const uint8_t* bits =
      op.read(selMask.ref(), 0, same_bits ? per_repeat / 8 : (count + 7) / 8, "selMask");
  const T* a = emulator::read_all(op, src0, count, "src0");
  const T* b = emulator::read_all(op, src1, count, "src1");
  T* to = emulator::write_all(op, dst, count, "dst");
  for (uint32_t i = 0; i < count; ++i) {
    to[i] = emulator::bit(bits, same_bits ? i % per_repeat : i) ? a[i] : b[i];
  }
  op.core.vector_bytes += 2ull * count * sizeof(T);
}

}  // namespace AscendC
