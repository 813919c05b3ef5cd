// The machinery of element-wise vector instructions: first-n and repeat-and-mask forms.
#pragma once
#include "datacopy.h"

namespace emulator {

// Half precision is computed in float and rounded once.
template <typename T>
using Computed = std::conditional_t<std::is_same<T, half>::value, float, T>;

template <typename T>
T narrow(Computed<T> value) {
  return T(value);
}

inline bool propagates_nan(const Op& op) {
  return op.core.launch->options.nan_mode == kNanPropagate;
}

template <typename T>
const T* read_all(const Op& op, const AscendC::LocalTensor<T>& t, uint64_t count,
                  const char* role) {
  return reinterpret_cast<const T*>(op.read(t.ref(), 0, count * sizeof(T), role));
}
template <typename T>
T* write_all(const Op& op, const AscendC::LocalTensor<T>& t, uint64_t count, const char* role) {
  return reinterpret_cast<T*>(op.write(t.ref(), 0, count * sizeof(T), role));
}

inline uint64_t check_count(const Op& op, int64_t count) {
  EMULATOR_REQUIRE(op, count >= 0, Kind::kArgument, "count " + std::to_string(count), "0 or more");
  return static_cast<uint64_t>(count);
}

// A destination may lie exactly over a source of at least its width, or apart from it.
template <typename D, typename S>
void check_overlap(const Op& op, const AscendC::LocalTensor<D>& dst,
                   const AscendC::LocalTensor<S>& src, uint64_t count, const char* role) {
  const uint64_t d = dst.ref().offset, s = src.ref().offset;
  const bool apart = d + count * sizeof(D) <= s || s + count * sizeof(S) <= d;
  EMULATOR_REQUIRE(op, apart || (d == s && sizeof(D) <= sizeof(S)), Kind::kArgument,
               std::string("dst and ") + role + " overlap in part",
               "let them coincide, or keep them apart");
}

template <typename D, typename S, typename F>
void unary_n(const Op& op, const AscendC::LocalTensor<D>& dst, const AscendC::LocalTensor<S>& src,
             int64_t count, F f) {
  const uint64_t n = check_count(op, count);
  if (n == 0) return;
  const S* from = read_all(op, src, n, "src");
  D* to = write_all(op, dst, n, "dst");
  check_overlap(op, dst, src, n, "src");
  for (uint64_t i = 0; i < n; ++i) to[i] = f(from[i]);
  op.core.vector_bytes += n * sizeof(S);
}

template <typename D, typename S, typename F>
void binary_n(const Op& op, const AscendC::LocalTensor<D>& dst, const AscendC::LocalTensor<S>& src0,
              const AscendC::LocalTensor<S>& src1, int64_t count, F f) {
  const uint64_t n = check_count(op, count);
  if (n == 0) return;
  const S* a = read_all(op, src0, n, "src0");
  const S* b = read_all(op, src1, n, "src1");
  D* to = write_all(op, dst, n, "dst");
  check_overlap(op, dst, src0, n, "src0");
  check_overlap(op, dst, src1, n, "src1");
  for (uint64_t i = 0; i < n; ++i) to[i] = f(a[i], b[i]);
  op.core.vector_bytes += 2 * n * sizeof(S);
}

// Which elements of a repeat take part.
struct Lanes {
  uint64_t bits[2] = {0, 0};
  bool has(uint32_t i) const { return (bits[i / 64] >> (i % 64)) & 1; }
};

inline Lanes first_lanes(const Op& op, uint64_t mask, uint32_t per_repeat) {
  EMULATOR_REQUIRE(op, mask <= per_repeat, Kind::kArgument,
               "mask " + num(mask) + " for " + num(per_repeat) + " elements a repeat",
               "at most " + num(per_repeat));
  Lanes lanes;
  for (uint64_t i = 0; i < mask; ++i) lanes.bits[i / 64] |= 1ull << (i % 64);
  return lanes;
}

inline Lanes bit_lanes(const Op& op, const uint64_t mask[], uint32_t per_repeat) {
  Lanes lanes;
  lanes.bits[0] = mask[0];
  if (per_repeat > 64) {
    lanes.bits[1] = mask[1];
  } else {
    EMULATOR_REQUIRE(op, mask[1] == 0, Kind::kArgument, "mask[1] is not 0 for 64 elements a repeat",
                 "set mask[1] to 0");
  }
  return lanes;
}

// Where element `i` of repeat `r` of a strided operand lies.
struct Stride {
  uint32_t block = 1, repeat = 8;  // in data blocks
  template <typename T>
  uint64_t at(uint32_t r, uint32_t i) const {
    constexpr uint32_t per_block = kBlockBytes / sizeof(T);
    return (static_cast<uint64_t>(r) * repeat + static_cast<uint64_t>(i / per_block) * block) *
               kBlockBytes +
           i % per_block * sizeof(T);
  }
};

inline void check_repeat(const Op& op, int32_t repeat) {
  EMULATOR_REQUIRE(op, repeat >= 0 && repeat <= 255, Kind::kArgument,
               "repeatTime " + std::to_string(repeat), "0 to 255; split longer work");
}

inline void check_start(const Op& op, const UbRef& ref, const char* role) {
  EMULATOR_REQUIRE(op, ref.offset % kBlockBytes == 0, Kind::kAlignment,
               std::string(role) + " starts at byte " + num(ref.offset) +
                   " of the unified buffer, not a multiple of 32",
               "start operands at multiples of 32 bytes");
}

// Calls visit(repeat, first, length) for each run of active elements inside one data block.
template <typename F>
void each_run(const Lanes& lanes, int32_t repeat, uint32_t per_repeat, uint32_t per_block,
              F visit) {
  for (int32_t r = 0; r < repeat; ++r) {
    for (uint32_t i = 0; i < per_repeat;) {
      if (!lanes.has(i)) {
        ++i;
        continue;
      }
      uint32_t end = i + 1;
      while (end < per_repeat && end % per_block != 0 && lanes.has(end)) ++end;
      visit(static_cast<uint32_t>(r), i, end - i);
      i = end;
    }
  }
}

template <typename D, typename S>
constexpr uint32_t lanes_of = kRepeatBytes / (sizeof(D) > sizeof(S) ? sizeof(D) : sizeof(S));
template <typename D, typename S>
constexpr uint32_t run_of = kBlockBytes / (sizeof(D) > sizeof(S) ? sizeof(D) : sizeof(S));

template <typename D, typename S, typename F>
void unary_strided(const Op& op, const AscendC::LocalTensor<D>& dst,
                   const AscendC::LocalTensor<S>& src, const Lanes& lanes, int32_t repeat,
                   Stride to, Stride from, F f) {
  check_repeat(op, repeat);
  check_start(op, dst.ref(), "dst");
  check_start(op, src.ref(), "src");
  EMULATOR_REQUIRE(op, to.block != 0, Kind::kArgument, "dstBlkStride 0", "1 or more");
  each_run(lanes, repeat, lanes_of<D, S>, run_of<D, S>, [&](uint32_t r, uint32_t i, uint32_t n) {
    const auto* a = reinterpret_cast<const S*>(
        op.read(src.ref(), from.at<S>(r, i), n * sizeof(S), "src", sizeof(S)));
    auto* d =
        reinterpret_cast<D*>(op.write(dst.ref(), to.at<D>(r, i), n * sizeof(D), "dst", sizeof(D)));
    for (uint32_t k = 0; k < n; ++k) d[k] = f(a[k]);
    op.core.vector_bytes += n * sizeof(S);
  });
}

template <typename D, typename S, typename F>
void binary_strided(const Op& op, const AscendC::LocalTensor<D>& dst,
                    const AscendC::LocalTensor<S>& src0, const AscendC::LocalTensor<S>& src1,
                    const Lanes& lanes, int32_t repeat, const AscendC::BinaryRepeatParams& p, F f) {
  check_repeat(op, repeat);
  check_start(op, dst.ref(), "dst");
  check_start(op, src0.ref(), "src0");
  check_start(op, src1.ref(), "src1");
  EMULATOR_REQUIRE(op, p.dstBlkStride != 0, Kind::kArgument, "dstBlkStride 0", "1 or more");
  const Stride to{p.dstBlkStride, p.dstRepStride};
  const Stride from0{p.src0BlkStride, p.src0RepStride}, from1{p.src1BlkStride, p.src1RepStride};
  each_run(lanes, repeat, lanes_of<D, S>, run_of<D, S>, [&](uint32_t r, uint32_t i, uint32_t n) {
    const auto* a = reinterpret_cast<const S*>(
        op.read(src0.ref(), from0.at<S>(r, i), n * sizeof(S), "src0", sizeof(S)));
    const auto* b = reinterpret_cast<const S*>(
        op.read(src1.ref(), from1.at<S>(r, i), n * sizeof(S), "src1", sizeof(S)));
    auto* d =
        reinterpret_cast<D*>(op.write(dst.ref(), to.at<D>(r, i), n * sizeof(D), "dst", sizeof(D)));
    for (uint32_t k = 0; k < n; ++k) d[k] = f(a[k], b[k]);
    op.core.vector_bytes += 2 * n * sizeof(S);
  });
}

inline Stride dst_stride(const AscendC::UnaryRepeatParams& p) {
  return {p.dstBlkStride, p.dstRepStride};
}
inline Stride src_stride(const AscendC::UnaryRepeatParams& p) {
  return {p.srcBlkStride, p.srcRepStride};
}

}  // namespace emulator
