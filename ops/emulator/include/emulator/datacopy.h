// DataCopy and DataCopyPad between global memory and the unified buffer.
#pragma once
#include "sync.h"

namespace emulator {

template <typename T>
constexpr bool can_copy = is_one_of<T, int8_t, uint8_t, int16_t, uint16_t, half, bfloat16_t,
                                    int32_t, uint32_t, float, int64_t, uint64_t, double>;

inline void check_path(const Op& op, int32_t position, bool to_ub, bool padded) {
  if (op.core.launch->options.strict_positions == 0) return;
  const auto at = static_cast<AscendC::TPosition>(position);
  const bool fine =
      to_ub ? at == AscendC::TPosition::VECIN || (padded && at == AscendC::TPosition::VECOUT)
            : at == AscendC::TPosition::VECOUT || (padded && at == AscendC::TPosition::VECIN);
  EMULATOR_REQUIRE(op, fine, Kind::kPosition,
               std::string(to_ub ? "GM to " : "") + position_name(at) + (to_ub ? "" : " to GM") +
                   " is not a documented path",
               to_ub ? "copy into VECIN" : "copy from VECOUT");
}

template <typename T>
void check_whole_blocks(const Op& op, uint64_t count) {
  EMULATOR_REQUIRE(op, count * sizeof(T) % kBlockBytes == 0, Kind::kAlignment,
               num(count) + " elements are " + num(count * sizeof(T)) +
                   " bytes, which DataCopy rounds down to " +
                   num(count * sizeof(T) / kBlockBytes * kBlockBytes),
               "use DataCopyPad, or whole blocks of 32 bytes");
}

template <typename T>
void check_gm_address(const Op& op, const T* address) {
  EMULATOR_REQUIRE(op, reinterpret_cast<uint64_t>(address) % sizeof(T) == 0, Kind::kAlignment,
               std::string("the global address is not a multiple of the ") + num(sizeof(T)) +
                   " bytes of " + type_name<T>(),
               "check the offset");
}

template <typename T>
void check_ext(const Op& op, const AscendC::DataCopyExtParams& p) {
  EMULATOR_REQUIRE(op, p.blockCount <= 4095, Kind::kArgument, "blockCount " + num(p.blockCount),
               "at most 4095");
  EMULATOR_REQUIRE(op, p.blockLen <= 2097151, Kind::kArgument, "blockLen " + num(p.blockLen),
               "at most 2097151 bytes");
  EMULATOR_REQUIRE(op, p.blockLen % sizeof(T) == 0, Kind::kArgument,
               "blockLen " + num(p.blockLen) + " is not a multiple of " + num(sizeof(T)),
               "blockLen counts bytes");
}

inline uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace emulator

namespace AscendC {

template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, uint32_t count, EMULATOR_SITE) {
  static_assert(emulator::can_copy<T>, "DataCopy: type not supported on Atlas A2/A3");
  emulator::Op op("DataCopy", PIPE_MTE2, site);
  emulator::check_whole_blocks<T>(op, count);
  emulator::check_gm_address(op, src.GetPhyAddr());
  emulator::check_path(op, dst.GetPosition(), true, false);
  const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(T);
  op.read_gm(src.ref(), src.GetPhyAddr(), bytes, "src");
  uint8_t* to = op.write(dst.ref(), 0, bytes, "dst");
  std::memcpy(to, src.GetPhyAddr(), bytes);
}

template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count, EMULATOR_SITE) {
  static_assert(emulator::can_copy<T>, "DataCopy: type not supported on Atlas A2/A3");
  emulator::Op op("DataCopy", PIPE_MTE3, site);
  emulator::check_whole_blocks<T>(op, count);
  emulator::check_gm_address(op, dst.GetPhyAddr());
  emulator::check_path(op, src.GetPosition(), false, false);
  const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(T);
  const uint8_t* from = op.read(src.ref(), 0, bytes, "src");
  op.write_gm(dst.ref(), dst.GetPhyAddr(), bytes, "dst");
  std::memcpy(dst.GetPhyAddr(0), from, bytes);
}

// Within the unified buffer, by the vector unit.
template <typename T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count, EMULATOR_SITE) {
  static_assert(emulator::can_copy<T>, "DataCopy: type not supported on Atlas A2/A3");
  emulator::Op op("DataCopy", PIPE_V, site);
  emulator::check_whole_blocks<T>(op, count);
  const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(T);
  const uint8_t* from = op.read(src.ref(), 0, bytes, "src");
  std::memmove(op.write(dst.ref(), 0, bytes, "dst"), from, bytes);
  op.core.vector_bytes += bytes;
}

template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& p,
              EMULATOR_SITE) {
  static_assert(emulator::can_copy<T>, "DataCopy: type not supported on Atlas A2/A3");
  emulator::Op op("DataCopy", PIPE_MTE2, site);
  EMULATOR_REQUIRE(op, p.blockCount <= 4095, emulator::Kind::kArgument,
               "blockCount " + emulator::num(p.blockCount), "at most 4095");
  emulator::check_gm_address(op, src.GetPhyAddr());
  emulator::check_path(op, dst.GetPosition(), true, false);
  const uint64_t bytes = p.blockLen * emulator::kBlockBytes;
  const uint8_t* from = reinterpret_cast<const uint8_t*>(src.GetPhyAddr());
  uint64_t at = 0;
  for (int b = 0; b < p.blockCount && bytes != 0; ++b) {
    op.read_gm(src.ref(), from, bytes, "src");
    std::memcpy(op.write(dst.ref(), at, bytes, "dst"), from, bytes);
    from += bytes + p.srcGap * emulator::kBlockBytes;
    at += bytes + p.dstGap * emulator::kBlockBytes;
  }
}

template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p,
              EMULATOR_SITE) {
  static_assert(emulator::can_copy<T>, "DataCopy: type not supported on Atlas A2/A3");
  emulator::Op op("DataCopy", PIPE_MTE3, site);
  EMULATOR_REQUIRE(op, p.blockCount <= 4095, emulator::Kind::kArgument,
               "blockCount " + emulator::num(p.blockCount), "at most 4095");
  emulator::check_gm_address(op, dst.GetPhyAddr());
  emulator::check_path(op, src.GetPosition(), false, false);
  const uint64_t bytes = p.blockLen * emulator::kBlockBytes;
  uint8_t* to = reinterpret_cast<uint8_t*>(dst.GetPhyAddr(0));
  uint64_t at = 0;
  for (int b = 0; b < p.blockCount && bytes != 0; ++b) {
    const uint8_t* from = op.read(src.ref(), at, bytes, "src");
    op.write_gm(dst.ref(), to, bytes, "dst");
    std::memcpy(to, from, bytes);
    to += bytes + p.dstGap * emulator::kBlockBytes;
    at += bytes + p.srcGap * emulator::kBlockBytes;
  }
}

// Each block is filled up to whole data blocks: with paddingValue where padding is asked for and
// isPad is set. Otherwise the filling is a dummy, which no kernel should read (the reference says
// it is the block's first element if there is no padding).
template <typename T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyExtParams& p,
                 const DataCopyPadExtParams<T>& pad, EMULATOR_SITE) {
  static_assert(emulator::can_copy<T>, "DataCopyPad: type not supported on Atlas A2/A3");
  emulator::Op op("DataCopyPad", PIPE_MTE2, site);
  emulator::check_ext<T>(op, p);
  emulator::check_path(op, dst.GetPosition(), true, true);
  EMULATOR_REQUIRE(op, pad.leftPadding * sizeof(T) <= 32 && pad.rightPadding * sizeof(T) <= 32,
               emulator::Kind::kArgument, "padding of more than 32 bytes", "at most 32 bytes a side");
  const uint64_t left = pad.leftPadding * sizeof(T), data = p.blockLen;
  const uint64_t filled = left + data + pad.rightPadding * sizeof(T);
  const uint64_t whole = emulator::round_up(filled, emulator::kBlockBytes);
  const bool padded = pad.leftPadding != 0 || pad.rightPadding != 0;
  const uint8_t* from = reinterpret_cast<const uint8_t*>(src.GetPhyAddr());
  uint64_t at = 0;
  for (int b = 0; b < p.blockCount && data != 0; ++b) {
    op.read_gm(src.ref(), from, data, "src");
    uint8_t* to = op.write(dst.ref(), at, whole, "dst");
    T fill = pad.paddingValue;
    if (!padded) std::memcpy(static_cast<void*>(&fill), from, sizeof(T));
    for (uint64_t i = 0; i < whole; i += sizeof(T)) {
      if (i < left || i >= left + data) std::memcpy(to + i, &fill, sizeof(T));
    }
    std::memcpy(to + left, from, data);
    if (!padded || !pad.isPad) op.forget(dst.ref(), at, left, data, whole);
    from += data + p.srcStride;
    at += whole + static_cast<uint64_t>(p.dstStride) * emulator::kBlockBytes;
  }
}

template <typename T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyExtParams& p,
                 EMULATOR_SITE) {
  static_assert(emulator::can_copy<T>, "DataCopyPad: type not supported on Atlas A2/A3");
  emulator::Op op("DataCopyPad", PIPE_MTE3, site);
  emulator::check_ext<T>(op, p);
  emulator::check_path(op, src.GetPosition(), false, true);
  const uint64_t data = p.blockLen, whole = emulator::round_up(data, emulator::kBlockBytes);
  uint8_t* to = reinterpret_cast<uint8_t*>(dst.GetPhyAddr(0));
  uint64_t at = 0;
  for (int b = 0; b < p.blockCount && data != 0; ++b) {
    const uint8_t* from = op.read(src.ref(), at, data, "src");
    op.write_gm(dst.ref(), to, data, "dst");
    std::memcpy(to, from, data);
    to += data + p.dstStride;
    at += whole + static_cast<uint64_t>(p.srcStride) * emulator::kBlockBytes;
  }
}

}  // namespace AscendC
