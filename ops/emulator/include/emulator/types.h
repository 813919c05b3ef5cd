// The names that kernels use: keywords, enums, parameter structs, half and bfloat16_t.
// Written from the public API reference for Atlas A2/A3; nothing here is CANN's.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define __aicore__
#define __global__
#define __gm__
#define __ubuf__
#define __vector__
#define __mix__(cube, vector)
#define EMULATOR_SITE ::emulator::Site site = ::emulator::Site::here()

// A macro, as in CANN: `GM_ADDR a, b;` makes b a byte.
#define GM_ADDR uint8_t*
using event_t = int32_t;

enum pipe_t { PIPE_S = 0, PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_MTE1, PIPE_M, PIPE_FIX, PIPE_ALL };

constexpr event_t EVENT_ID0 = 0, EVENT_ID1 = 1, EVENT_ID2 = 2, EVENT_ID3 = 3;
constexpr event_t EVENT_ID4 = 4, EVENT_ID5 = 5, EVENT_ID6 = 6, EVENT_ID7 = 7;

namespace emulator {

inline float bits_to_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint32_t float_to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu;
  if (exponent == 0x1f) return bits_to_float(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return bits_to_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float value = std::ldexp(static_cast<float>(mantissa), -24);
  return sign ? -value : value;
}

}  // namespace emulator

// IEEE binary16. Arithmetic goes through float, as the scalar unit's does.
struct half {
  uint16_t bits = 0;
  half() = default;
  half(float value);  // NOLINT: implicit in AscendC, too; rounds to nearest even
  operator float() const { return emulator::half_to_float(bits); }
};

// No arithmetic and no implicit conversion: the device has neither. See AscendC::ToFloat.
struct bfloat16_t {
  uint16_t bits = 0;
};

namespace AscendC {

constexpr int32_t ONE_BLK_SIZE = 32;
constexpr int32_t ONE_REPEAT_BYTE_SIZE = 256;
constexpr int32_t DEFAULT_BLK_NUM = 8;
constexpr int32_t DEFAULT_BLK_STRIDE = 1;
constexpr uint8_t DEFAULT_REPEAT_STRIDE = 8;
constexpr uint64_t MASK_PLACEHOLDER = 0;

using TEventID = int32_t;

enum class TPosition : uint8_t {
  GM,
  A1,
  A2,
  B1,
  B2,
  C1,
  C2,
  CO1,
  CO2,
  VECIN,
  VECOUT,
  VECCALC,
  LCM = VECCALC,
  SPM,
  SHM = SPM,
  TSCM,
  C2PIPE2GM,
  C2PIPE2LOCAL,
  MAX
};
using QuePosition = TPosition;

enum class HardEvent : uint8_t {
  S_V,
  S_MTE2,
  S_MTE3,
  V_S,
  V_MTE2,
  V_MTE3,
  MTE2_S,
  MTE2_V,
  MTE2_MTE3,
  MTE3_S,
  MTE3_V,
  MTE3_MTE2,
  MAX
};

enum class CMPMODE : uint8_t { LT = 0, GT, EQ, LE, GE, NE };
enum class SELMODE : uint8_t {
  VSEL_CMPMASK_SPR = 0,
  VSEL_TENSOR_SCALAR_MODE,
  VSEL_TENSOR_TENSOR_MODE
};
enum class RoundMode : uint8_t {
  CAST_NONE = 0,
  CAST_RINT,
  CAST_FLOOR,
  CAST_CEIL,
  CAST_ROUND,
  CAST_TRUNC,
  CAST_ODD
};
enum class ReduceType : uint8_t { SUM = 0, MAX, MIN };
enum class ReduceOrder : uint8_t {
  ORDER_VALUE_INDEX = 0,
  ORDER_INDEX_VALUE,
  ORDER_ONLY_VALUE,
  ORDER_ONLY_INDEX
};
enum class CacheLine : uint8_t { SINGLE_CACHE_LINE = 0, ENTIRE_DATA_CACHE };
enum class DcciDst : uint8_t { CACHELINE_ALL = 0, CACHELINE_UB, CACHELINE_OUT, CACHELINE_ATOMIC };

struct DataCopyParams {
  uint16_t blockCount = 1, blockLen = 0;  // lengths and gaps in data blocks of 32 bytes
  union {
    uint16_t srcGap, srcStride;
  };  // the gaps have both names, by release
  union {
    uint16_t dstGap, dstStride;
  };
  DataCopyParams() : srcGap(0), dstGap(0) {}
  DataCopyParams(uint16_t count, uint16_t len, uint16_t src, uint16_t dst)
      : blockCount(count), blockLen(len), srcGap(src), dstGap(dst) {}
};

struct DataCopyExtParams {
  uint16_t blockCount = 1;
  uint32_t blockLen = 0;   // bytes
  uint32_t srcStride = 0;  // gap: bytes in global memory, data blocks in the unified buffer
  uint32_t dstStride = 0;
  uint32_t rsv = 0;
  DataCopyExtParams() = default;
  DataCopyExtParams(uint16_t count, uint32_t len, uint32_t src, uint32_t dst, uint32_t reserved)
      : blockCount(count), blockLen(len), srcStride(src), dstStride(dst), rsv(reserved) {}
};

template <typename T>
struct DataCopyPadExtParams {
  bool isPad = false;
  uint8_t leftPadding = 0, rightPadding = 0;  // elements
  T paddingValue = T();
  DataCopyPadExtParams() = default;
  DataCopyPadExtParams(bool pad, uint8_t left, uint8_t right, T value)
      : isPad(pad), leftPadding(left), rightPadding(right), paddingValue(value) {}
};

struct UnaryRepeatParams {
  uint32_t blockNumber = DEFAULT_BLK_NUM;
  uint16_t dstBlkStride = DEFAULT_BLK_STRIDE, srcBlkStride = DEFAULT_BLK_STRIDE;
  uint8_t dstRepStride = DEFAULT_REPEAT_STRIDE, srcRepStride = DEFAULT_REPEAT_STRIDE;
  UnaryRepeatParams() = default;
  UnaryRepeatParams(uint16_t dstBlk, uint16_t srcBlk, uint8_t dstRep, uint8_t srcRep)
      : dstBlkStride(dstBlk), srcBlkStride(srcBlk), dstRepStride(dstRep), srcRepStride(srcRep) {}
};

struct BinaryRepeatParams {
  uint32_t blockNumber = DEFAULT_BLK_NUM;
  uint8_t dstBlkStride = DEFAULT_BLK_STRIDE, src0BlkStride = DEFAULT_BLK_STRIDE,
          src1BlkStride = DEFAULT_BLK_STRIDE;
  uint8_t dstRepStride = DEFAULT_REPEAT_STRIDE, src0RepStride = DEFAULT_REPEAT_STRIDE,
          src1RepStride = DEFAULT_REPEAT_STRIDE;
  BinaryRepeatParams() = default;
  BinaryRepeatParams(uint8_t dstBlk, uint8_t src0Blk, uint8_t src1Blk, uint8_t dstRep,
                     uint8_t src0Rep, uint8_t src1Rep)
      : dstBlkStride(dstBlk),
        src0BlkStride(src0Blk),
        src1BlkStride(src1Blk),
        dstRepStride(dstRep),
        src0RepStride(src0Rep),
        src1RepStride(src1Rep) {}
};

struct GatherMaskParams {
  uint8_t src0BlockStride = DEFAULT_BLK_STRIDE;
  uint16_t repeatTimes = 0, src0RepeatStride = 0;
  uint8_t src1RepeatStride = 0;
  GatherMaskParams() = default;
  GatherMaskParams(uint8_t src0Block, uint16_t repeats, uint16_t src0Repeat, uint8_t src1Repeat)
      : src0BlockStride(src0Block),
        repeatTimes(repeats),
        src0RepeatStride(src0Repeat),
        src1RepeatStride(src1Repeat) {}
};

struct BrcbRepeatParams {
  uint16_t dstBlkStride = DEFAULT_BLK_STRIDE, dstRepStride = DEFAULT_REPEAT_STRIDE;
  BrcbRepeatParams() = default;
  BrcbRepeatParams(uint16_t dstBlk, uint16_t dstRep) : dstBlkStride(dstBlk), dstRepStride(dstRep) {}
};

using ::bfloat16_t;
using ::half;

}  // namespace AscendC

namespace emulator {

template <typename T, typename... Ts>
constexpr bool is_one_of = (std::is_same<T, Ts>::value || ...);

template <typename T>
constexpr const char* type_name() {
  if (std::is_same<T, float>::value) return "float";
  if (std::is_same<T, half>::value) return "half";
  if (std::is_same<T, bfloat16_t>::value) return "bfloat16_t";
  if (std::is_same<T, int64_t>::value) return "int64_t";
  if (std::is_same<T, uint64_t>::value) return "uint64_t";
  if (std::is_same<T, int32_t>::value) return "int32_t";
  if (std::is_same<T, uint32_t>::value) return "uint32_t";
  if (std::is_same<T, int16_t>::value) return "int16_t";
  if (std::is_same<T, uint16_t>::value) return "uint16_t";
  if (std::is_same<T, int8_t>::value) return "int8_t";
  if (std::is_same<T, uint8_t>::value) return "uint8_t";
  if (std::is_same<T, double>::value) return "double";
  return "unknown type";
}

}  // namespace emulator
