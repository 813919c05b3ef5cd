// Picking elements by a mask or by their offsets.
#pragma once
#include "compare.h"

namespace emulator {

template <typename T, typename Selected>
void gather_mask(const Op& op, const AscendC::LocalTensor<T>& dst,
                 const AscendC::LocalTensor<T>& src, bool counter, uint32_t mask,
                 const AscendC::GatherMaskParams& p, uint64_t& kept, Selected selected) {
  constexpr uint32_t per_repeat = kRepeatBytes / sizeof(T);
  EMULATOR_REQUIRE(op, !counter || mask != 0, Kind::kArgument, "mask 0 in counter mode", "1 or more");
  check_start(op, dst.ref(), "dst");
  check_start(op, src.ref(), "src0");
  const uint32_t per = counter ? mask : per_repeat;
  const Stride from{p.src0BlockStride, p.src0RepeatStride};
  std::vector<T> chosen;
  for (uint32_t r = 0; r < p.repeatTimes; ++r) {
    for (uint32_t i = 0; i < per; ++i) {
      const auto* a = reinterpret_cast<const T*>(
          op.read(src.ref(), from.at<T>(r, i), sizeof(T), "src0", sizeof(T)));
      if (selected(r, i)) chosen.push_back(*a);
    }
  }
  std::copy(chosen.begin(), chosen.end(), write_all(op, dst, chosen.size(), "dst"));
  op.core.vector_bytes += static_cast<uint64_t>(per) * p.repeatTimes * sizeof(T);
  kept = chosen.size();
}

}  // namespace emulator

namespace AscendC {

template <typename T, typename U>
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src0,
                const LocalTensor<U>& src1Pattern, const bool reduceMode, const uint32_t mask,
                const GatherMaskParams& params, uint64_t& rsvdCnt, EMULATOR_SITE) {
  EMULATOR_TYPES(GatherMask, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float);
  static_assert(std::is_same<U, std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>>::value,
                "GatherMask: the pattern is uint16_t for 16 bits, uint32_t for 32 bits");
  emulator::Op op("GatherMask", PIPE_V, site);
  emulator::check_start(op, src1Pattern.ref(), "src1Pattern");
  emulator::gather_mask(op, dst, src0, reduceMode, mask, params, rsvdCnt, [&](uint32_t r, uint32_t i) {
    const uint64_t at = static_cast<uint64_t>(r) * params.src1RepeatStride * emulator::kBlockBytes;
    return emulator::bit(op.read(src1Pattern.ref(), at + i / 8, 1, "src1Pattern", 1), i % 8);
  });
}

template <typename T>
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const uint8_t src1Pattern,
                const bool reduceMode, const uint32_t mask, const GatherMaskParams& params,
                uint64_t& rsvdCnt, EMULATOR_SITE) {
  EMULATOR_TYPES(GatherMask, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float);
  emulator::Op op("GatherMask", PIPE_V, site);
  EMULATOR_REQUIRE(op, src1Pattern >= 1 && src1Pattern <= 7, emulator::Kind::kArgument,
               "pattern " + emulator::num(src1Pattern), "1 to 7");
  emulator::gather_mask(op, dst, src0, reduceMode, mask, params, rsvdCnt, [&](uint32_t, uint32_t i) {
    if (src1Pattern <= 2) return i % 2 == src1Pattern - 1u;
    return src1Pattern == 7 || i % 4 == src1Pattern - 3u;
  });
}

// dst[i] = the element of src at byte srcBaseAddr + srcOffset[i]
template <typename T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src,
            const LocalTensor<uint32_t>& srcOffset, const uint32_t srcBaseAddr,
            const uint32_t count, EMULATOR_SITE) {
  EMULATOR_TYPES(Gather, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float);
  emulator::Op op("Gather", PIPE_V, site);
  if (count == 0) return;
  emulator::check_start(op, src.ref(), "src");
  const uint32_t* offsets = emulator::read_all(op, srcOffset, count, "srcOffset");
  std::vector<T> chosen(count);
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t at = static_cast<uint64_t>(srcBaseAddr) + offsets[i];
    EMULATOR_REQUIRE(op, at % sizeof(T) == 0, emulator::Kind::kAlignment,
                 "an offset of " + emulator::num(at) + " bytes",
                 "offsets count bytes; use multiples of the element size");
    std::memcpy(static_cast<void*>(&chosen[i]), op.read(src.ref(), at, sizeof(T), "src", sizeof(T)),
                sizeof(T));
  }
  std::copy(chosen.begin(), chosen.end(), emulator::write_all(op, dst, count, "dst"));
  op.core.vector_bytes += static_cast<uint64_t>(count) * (sizeof(T) + 4);
}

}  // namespace AscendC
