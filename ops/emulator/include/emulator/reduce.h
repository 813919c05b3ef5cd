// Reductions: to one element, to one element a repeat, to one element a data block.
#pragma once
#include "cast.h"

namespace emulator {

using AscendC::ReduceOrder;
using AscendC::ReduceType;

// Elements of sharedTmpBuffer that ReduceMax and ReduceMin of `count` elements need.
template <typename T>
constexpr uint64_t reduce_scratch(uint64_t count, bool with_index) {
  constexpr uint64_t per_block = kBlockBytes / sizeof(T), per_repeat = kRepeatBytes / sizeof(T);
  const uint64_t first = (count + per_repeat - 1) / per_repeat * 2;
  const uint64_t first_end = (first + per_block - 1) / per_block * per_block;
  if (!with_index) return first_end;
  const uint64_t second = (first + per_repeat - 1) / per_repeat * 2;
  const uint64_t second_end = (second + per_block - 1) / per_block * per_block;
  if (second <= 2) return first_end + second_end;
  const uint64_t third = (second + per_repeat - 1) / per_repeat * 2;
  return first_end + second_end + (third + per_block - 1) / per_block * per_block;
}

// The most extreme element's position; the lowest of equals. NaN by the launch's nan_mode.
template <typename T, typename Get>
uint32_t extreme(uint32_t count, bool want_max, bool nan_wins, Get get) {
  uint32_t best = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const Computed<T> value = get(i), leader = get(best);
    if (value != value) {
      if (nan_wins) return i;
      continue;
    }
    if (leader != leader || (want_max ? value > leader : value < leader)) best = i;
  }
  return best;
}

template <typename T>
T index_as(uint32_t index) {
  T stored;
  if constexpr (sizeof(T) == 2) {
    const auto narrow_index = static_cast<uint16_t>(index);
    std::memcpy(static_cast<void*>(&stored), &narrow_index, sizeof stored);
  } else {
    std::memcpy(static_cast<void*>(&stored), &index, sizeof stored);
  }
  return stored;
}

template <typename T>
void reduce_extreme(const Op& op, bool want_max, const AscendC::LocalTensor<T>& dst,
                    const AscendC::LocalTensor<T>& src, const AscendC::LocalTensor<T>& scratch,
                    int32_t count, bool with_index) {
  const uint64_t n = check_count(op, count);
  if (n == 0) return;
  EMULATOR_REQUIRE(op, !with_index || sizeof(T) != 2 || n <= 65536, Kind::kArgument,
               num(n) + " half elements have indices beyond 65535",
               "split, or do without the index");
  const T* from = read_all(op, src, n, "src");
  const uint32_t at = extreme<T>(static_cast<uint32_t>(n), want_max, propagates_nan(op),
                                 [from](uint32_t i) { return from[i]; });
  const T result[2] = {from[at], index_as<T>(at)};
  const bool in_place = scratch.ref().offset == src.ref().offset;
  const uint64_t needed = reduce_scratch<T>(n, with_index);
  const uint64_t scratch_bytes = (in_place ? std::min(needed, n) : needed) * sizeof(T);
  op.write(scratch.ref(), 0, scratch_bytes, "sharedTmpBuffer");
  op.forget(scratch.ref(), 0, scratch_bytes, 0, scratch_bytes);
  const uint32_t bytes = (with_index ? 2 : 1) * sizeof(T);
  std::memcpy(op.write(dst.ref(), 0, bytes, "dst", bytes), result, bytes);
  op.core.vector_bytes += n * sizeof(T);
}

// Adds neighbours, then neighbours of sums, as the device's tree does.
template <typename T>
Computed<T> tree_sum(std::vector<Computed<T>> values) {
  while (values.size() > 1) {
    const size_t half_size = (values.size() + 1) / 2;
    for (size_t i = 0; i < half_size; ++i) {
      const bool pair = 2 * i + 1 < values.size();
      values[i] = narrow<T>(pair ? values[2 * i] + values[2 * i + 1] : values[2 * i]);
    }
    values.resize(half_size);
  }
  return values.empty() ? Computed<T>(0) : values[0];
}

inline void check_stride(const Op& op, int32_t stride, const char* name) {
  EMULATOR_REQUIRE(op, stride >= 0 && stride <= 65535, Kind::kArgument,
               std::string(name) + " " + std::to_string(stride), "0 to 65535");
}

struct RepeatArgs {
  int32_t repeat, dst_stride, src_block, src_repeat;
};

inline void check_reduce(const Op& op, const RepeatArgs& args, const UbRef& src) {
  check_repeat(op, args.repeat);
  check_stride(op, args.dst_stride, "dstRepStride");
  check_stride(op, args.src_block, "srcBlkStride");
  check_stride(op, args.src_repeat, "srcRepStride");
  check_start(op, src, "src");
}

// The active elements of [first, last) in repeat r, with their positions in the repeat.
template <typename T>
void active(const Op& op, const AscendC::LocalTensor<T>& src, const Lanes& lanes, Stride from,
            uint32_t r, uint32_t first, uint32_t last, std::vector<T>& values,
            std::vector<uint32_t>& positions) {
  values.clear();
  positions.clear();
  for (uint32_t i = first; i < last; ++i) {
    if (!lanes.has(i)) continue;
    values.push_back(*reinterpret_cast<const T*>(
        op.read(src.ref(), from.at<T>(r, i), sizeof(T), "src", sizeof(T))));
    positions.push_back(i);
  }
}

template <ReduceType type, typename T>
std::pair<T, uint32_t> reduce_group(const Op& op, const std::vector<T>& values,
                                    const std::vector<uint32_t>& positions) {
  if constexpr (type == ReduceType::SUM) {
    return {narrow<T>(tree_sum<T>({values.begin(), values.end()})), 0};
  } else {
    const uint32_t at = extreme<T>(static_cast<uint32_t>(values.size()), type == ReduceType::MAX,
                                   propagates_nan(op), [&](uint32_t i) { return values[i]; });
    return {values[at], positions[at]};
  }
}

template <ReduceType type, typename T>
void reduce_repeats(const Op& op, const AscendC::LocalTensor<T>& dst,
                    const AscendC::LocalTensor<T>& src, const Lanes& lanes, const RepeatArgs& args,
                    ReduceOrder order) {
  check_reduce(op, args, src.ref());
  const bool only_value = type == ReduceType::SUM || order == ReduceOrder::ORDER_ONLY_VALUE;
  const bool only_index = !only_value && order == ReduceOrder::ORDER_ONLY_INDEX;
  const uint32_t unit = only_value ? sizeof(T) : only_index ? 4 : 2 * sizeof(T);
  const Stride from{static_cast<uint32_t>(args.src_block), static_cast<uint32_t>(args.src_repeat)};
  std::vector<T> values;
  std::vector<uint32_t> positions;
  for (int32_t r = 0; r < args.repeat; ++r) {
    active(op, src, lanes, from, r, 0, kRepeatBytes / sizeof(T), values, positions);
    if (values.empty()) return;
    const auto result = reduce_group<type>(op, values, positions);
    uint8_t* to =
        op.write(dst.ref(), static_cast<uint64_t>(r) * args.dst_stride * unit, unit, "dst", unit);
    const T index = index_as<T>(result.second);
    const bool index_first = order == ReduceOrder::ORDER_INDEX_VALUE;
    if (only_index) {
      std::memcpy(to, &result.second, 4);
    } else {
      std::memcpy(to + (!only_value && index_first ? sizeof(T) : 0), &result.first, sizeof(T));
      if (!only_value) std::memcpy(to + (index_first ? 0 : sizeof(T)), &index, sizeof(T));
    }
    op.core.vector_bytes += values.size() * sizeof(T);
  }
}

template <ReduceType type, typename T>
void reduce_blocks(const Op& op, const AscendC::LocalTensor<T>& dst,
                   const AscendC::LocalTensor<T>& src, const Lanes& lanes, const RepeatArgs& args) {
  check_reduce(op, args, src.ref());
  constexpr uint32_t per_block = kBlockBytes / sizeof(T);
  EMULATOR_REQUIRE(
      op, dst.ref().offset % (8 * sizeof(T)) == 0, Kind::kAlignment,
      "dst starts at byte " + num(dst.ref().offset) + ", not a multiple of " + num(8 * sizeof(T)),
      "start dst at a multiple of " + num(8 * sizeof(T)) + " bytes");
  const Stride from{static_cast<uint32_t>(args.src_block), static_cast<uint32_t>(args.src_repeat)};
  std::vector<T> values;
  std::vector<uint32_t> positions;
  for (int32_t r = 0; r < args.repeat; ++r) {
    for (uint32_t b = 0; b < 8; ++b) {
      active(op, src, lanes, from, r, b * per_block, (b + 1) * per_block, values, positions);
      if (values.empty()) continue;  // dst keeps what it had
      const T result = reduce_group<type>(op, values, positions).first;
      const uint64_t at = (static_cast<uint64_t>(r) * args.dst_stride * 8 + b) * sizeof(T);
      std::memcpy(op.write(dst.ref(), at, sizeof(T), "dst", sizeof(T)), &result, sizeof(T));
      op.core.vector_bytes += values.size() * sizeof(T);
    }
  }
}

}  // namespace emulator

namespace AscendC {

template <typename T>
void ReduceMax(const LocalTensor<T>& dst, const LocalTensor<T>& src,
               const LocalTensor<T>& sharedTmpBuffer, const int32_t count, bool calIndex = false,
               EMULATOR_SITE) {
  EMULATOR_TYPES(ReduceMax, half, float);
  emulator::Op op("ReduceMax", PIPE_V, site);
  emulator::reduce_extreme(op, true, dst, src, sharedTmpBuffer, count, calIndex);
}

template <typename T>
void ReduceMin(const LocalTensor<T>& dst, const LocalTensor<T>& src,
               const LocalTensor<T>& sharedTmpBuffer, const int32_t count, bool calIndex = false,
               EMULATOR_SITE) {
  EMULATOR_TYPES(ReduceMin, half, float);
  emulator::Op op("ReduceMin", PIPE_V, site);
  emulator::reduce_extreme(op, false, dst, src, sharedTmpBuffer, count, calIndex);
}

// A tree inside each repeat, repeats one after the other; sharedTmpBuffer is not used.
template <typename T>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src,
               const LocalTensor<T>& sharedTmpBuffer, const int32_t count, EMULATOR_SITE) {
  EMULATOR_TYPES(ReduceSum, half, float);
  emulator::Op op("ReduceSum", PIPE_V, site);
  static_cast<void>(sharedTmpBuffer);
  const uint64_t n = emulator::check_count(op, count);
  if (n == 0) return;
  constexpr uint64_t per_repeat = emulator::kRepeatBytes / sizeof(T);
  const T* from = emulator::read_all(op, src, n, "src");
  emulator::Computed<T> sum = 0;
  for (uint64_t i = 0; i < n; i += per_repeat) {
    const T* end = from + std::min(n, i + per_repeat);
    sum = emulator::narrow<T>(sum + emulator::tree_sum<T>({from + i, end}));
  }
  const T result = emulator::narrow<T>(sum);
  std::memcpy(op.write(dst.ref(), 0, sizeof(T), "dst", sizeof(T)), &result, sizeof(T));
  op.core.vector_bytes += n * sizeof(T);
}

// `Maker` turns the mask into lanes: its first elements, or its bits.
#define EMULATOR_REDUCE_FORMS(Mask, Maker)                                                        \
  template <ReduceType reduceType, typename T, bool isSetMask = true>                         \
  void ReduceRepeat(const LocalTensor<T>& dst, const LocalTensor<T>& src, Mask,               \
                    int32_t repeatTime, int32_t dstRepStride, int32_t srcBlkStride,           \
                    int32_t srcRepStride, ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, \
                    EMULATOR_SITE) {                                                              \
    EMULATOR_TYPES(ReduceRepeat, half, float);                                                    \
    emulator::Op op("ReduceRepeat", PIPE_V, site);                                                \
    const auto lanes = emulator::Maker(op, mask, emulator::lanes_of<T, T>);                           \
    emulator::reduce_repeats<reduceType>(                                                         \
        op, dst, src, lanes, {repeatTime, dstRepStride, srcBlkStride, srcRepStride}, order);  \
  }                                                                                           \
  template <ReduceType reduceType, typename T, bool isSetMask = true>                         \
  void ReduceDataBlock(const LocalTensor<T>& dst, const LocalTensor<T>& src, Mask,            \
                       int32_t repeatTime, int32_t dstRepStride, int32_t srcBlkStride,        \
                       int32_t srcRepStride, EMULATOR_SITE) {                                     \
    EMULATOR_TYPES(ReduceDataBlock, half, float);                                                 \
    emulator::Op op("ReduceDataBlock", PIPE_V, site);                                             \
    const auto lanes = emulator::Maker(op, mask, emulator::lanes_of<T, T>);                           \
    emulator::reduce_blocks<reduceType>(op, dst, src, lanes,                                      \
                                    {repeatTime, dstRepStride, srcBlkStride, srcRepStride});  \
  }

EMULATOR_REDUCE_FORMS(int32_t mask, first_lanes)
EMULATOR_REDUCE_FORMS(const uint64_t mask[], bit_lanes)

// The names of older releases. Blocks take repeatTime before mask, repeats after it.
#define EMULATOR_OLD_EXTREME(Name, Type)                                                               \
  template <typename T, bool isSetMask = true>                                                     \
  void Whole##Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, int32_t mask,             \
                   int32_t repeatTime, int32_t dstRepStride, int32_t srcBlkStride,                 \
                   int32_t srcRepStride, ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX,       \
                   EMULATOR_SITE) {                                                                    \
    ReduceRepeat<ReduceType::Type>(dst, src, mask, repeatTime, dstRepStride, srcBlkStride,         \
                                   srcRepStride, order, site);                                     \
  }                                                                                                \
  template <typename T, bool isSetMask = true>                                                     \
  void Block##Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, int32_t repeatTime,       \
                   int32_t mask, int32_t dstRepStride, int32_t srcBlkStride, int32_t srcRepStride, \
                   EMULATOR_SITE) {                                                                    \
    ReduceDataBlock<ReduceType::Type>(dst, src, mask, repeatTime, dstRepStride, srcBlkStride,      \
                                      srcRepStride, site);                                         \
  }

EMULATOR_OLD_EXTREME(ReduceMax, MAX)
EMULATOR_OLD_EXTREME(ReduceMin, MIN)

template <typename T, bool isSetMask = true>
void WholeReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, int32_t mask,
                    int32_t repeatTime, int32_t dstRepStride, int32_t srcBlkStride,
                    int32_t srcRepStride, EMULATOR_SITE) {
  ReduceRepeat<ReduceType::SUM>(dst, src, mask, repeatTime, dstRepStride, srcBlkStride,
                                srcRepStride, ReduceOrder::ORDER_ONLY_VALUE, site);
}
template <typename T, bool isSetMask = true>
void BlockReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, int32_t repeatTime,
                    int32_t mask, int32_t dstRepStride, int32_t srcBlkStride, int32_t srcRepStride,
                    EMULATOR_SITE) {
  ReduceDataBlock<ReduceType::SUM>(dst, src, mask, repeatTime, dstRepStride, srcBlkStride,
                                   srcRepStride, site);
}

}  // namespace AscendC
