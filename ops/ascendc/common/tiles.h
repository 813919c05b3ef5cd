// Reads tiles of a matrix's rows into the unified buffer as float32, one tile ahead.
#pragma once
#include "limits.h"
#include "order.h"

namespace spec {

using AscendC::GlobalTensor;
using AscendC::TBuf;
using AscendC::TPosition;
using AscendC::TQue;

// How a type is copied, and its -inf in that form. 16-bit types travel as integers.
template <typename In>
struct Copied {
  using Type = uint16_t;
  static constexpr uint16_t kLowest = 0xfc00;  // half
};
template <>
struct Copied<bfloat16_t> {
  using Type = uint16_t;
  static constexpr uint16_t kLowest = 0xff80;
};
template <>
struct Copied<float> {
  using Type = float;
  static constexpr float kLowest = -kInfinity;
};

template <typename In>
class Tiles {
 public:
  using Type = typename Copied<In>::Type;
  static constexpr bool kWide = sizeof(In) == 4;

  SPEC_FN void init(AscendC::TPipe& pipe, Address matrix, uint32_t columns, uint64_t stride,
                    uint32_t tile) {
    // The size is for messages of the emulator only: the last row may end before its stride does.
    matrix_.SetGlobalBuffer(reinterpret_cast<__gm__ Type*>(matrix));
    columns_ = columns;
    stride_ = stride;
    tile_ = tile;
    pipe.InitBuffer(queue_, 2, kTile * sizeof(In));
    if constexpr (!kWide) {
      pipe.InitBuffer(wide_, kFloats);
      // What lies after a row's end is compared, though never kept.
      AscendC::Duplicate(wide_.template Get<float>(), 0.0f, kTile);
      vector_order();
    }
  }

  SPEC_FN uint32_t count() const { return (columns_ + tile_ - 1) / tile_; }
  SPEC_FN uint32_t first_column(uint32_t tile) const { return tile * tile_; }
  SPEC_FN uint32_t length(uint32_t tile) const { return least(tile_, columns_ - tile * tile_); }

  // Starts to copy a tile. At most two may be under way or taken.
  SPEC_FN void fetch(uint32_t row, uint32_t tile) {
    constexpr uint32_t per_block = kBlock / sizeof(Type);
    const uint32_t n = length(tile);
    const uint32_t missing = round_up(n, per_block) - n;
    LocalTensor<Type> raw = queue_.template AllocTensor<Type>();
    const AscendC::DataCopyExtParams copy(1, n * sizeof(Type), 0, 0, 0);
    const AscendC::DataCopyPadExtParams<Type> pad(true, 0, static_cast<uint8_t>(missing),
                                                  Copied<In>::kLowest);
    AscendC::DataCopyPad(raw, matrix_[row * stride_ + first_column(tile)], copy, pad);
    queue_.EnQue(raw);
  }

  // The tile that was fetched first, with -inf after its end up to whole repeats. The vector unit
  // may change it. To be given back by release().
  SPEC_FN LocalTensor<float> take(uint32_t tile) {
    const uint32_t n = length(tile);
    LocalTensor<Type> raw = queue_.template DeQue<Type>();
    constexpr uint32_t per_block = kBlock / sizeof(Type);
    const uint32_t filled = round_up(n, per_block), end = round_up(n, kLanes);
    LocalTensor<float> values;
    if constexpr (kWide) {
      taken_ = raw;
      values = raw;
    } else {
      values = wide_.template Get<float>();
      AscendC::Cast(values, raw.template ReinterpretCast<In>(), AscendC::RoundMode::CAST_NONE,
                    filled);
      queue_.FreeTensor(raw);
      vector_order();
    }
    if (filled < end) {
      AscendC::Duplicate(values[filled], -kInfinity, static_cast<int32_t>(end - filled));
      vector_order();
    }
    return values;
  }

  SPEC_FN void release() {
    if constexpr (kWide) queue_.FreeTensor(taken_);
  }

  // A buffer of a tile's size, while no tile is fetched or taken. To be given back.
  SPEC_FN LocalTensor<float> borrow() {
    if constexpr (kWide) {
      taken_ = queue_.template AllocTensor<float>();
      // Queues order copies and vector instructions only between EnQue and DeQue.
      queue_.EnQue(taken_);
      taken_ = queue_.template DeQue<float>();
      return taken_;
    } else {
      return wide_.template Get<float>();
    }
  }
  SPEC_FN void give_back() { release(); }

 private:
  GlobalTensor<Type> matrix_;
  TQue<TPosition::VECIN, 2> queue_;
  TBuf<TPosition::VECCALC> wide_;
  LocalTensor<Type> taken_;  // of the queue, in float32
  uint32_t columns_;
  uint64_t stride_;
  uint32_t tile_;
};

}  // namespace spec
