// grammar_mask: -inf for the tokens that a bitmask forbids, in place.
//
// The vector unit selects by bitmaps, one bit an element from the lowest bit of the first byte on:
// xgrammar's words are such bitmaps already. Cores share the masks' tiles evenly.
#pragma once
#include "../common/tiles.h"

#include "../common/layout.h"

namespace spec {

struct GrammarArguments {
  Address logits, bitmask, row_indices;
  uint32_t num_masked, num_words, vocab_size;
  uint64_t row_stride;
  uint32_t tile;
};

template <typename In>
class GrammarMask {
  using Type = typename Copied<In>::Type;

 public:
  SPEC_FN void init(AscendC::TPipe& pipe, const GrammarArguments& args) {
    args_ = args;
    tiles_.init(pipe, args.logits, args.vocab_size, args.row_stride, args.tile);
    logits_.SetGlobalBuffer(reinterpret_cast<__gm__ In*>(args.logits));
    words_.SetGlobalBuffer(reinterpret_cast<__gm__ uint32_t*>(args.bitmask));
    rows_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(args.row_indices), args.num_masked);
    pipe.InitBuffer(bits_, 2, kTile / 8);
    pipe.InitBuffer(masked_, 2, kTile * sizeof(In));
  }

  SPEC_FN void run() {
    const auto core = static_cast<uint32_t>(AscendC::GetBlockIdx());
    const auto cores = static_cast<uint32_t>(AscendC::GetBlockNum());
    const Split cut(args_.num_masked, tiles_.count(), cores);
    const uint64_t end = cut.first(core + 1);
    uint64_t at = next(cut.first(core), end);
    if (at < end) fetch(at);
    while (at < end) {
      const uint64_t following = next(at + 1, end);
      if (following < end) fetch(following);
      mask(at);
      at = following;
    }
  }

 private:
  // Skips masks that have no row.
  SPEC_FN uint64_t next(uint64_t at, uint64_t end) const {
    while (at < end && row_of(at) < 0) at = (at / tiles_.count() + 1) * tiles_.count();
    return at;
  }
  SPEC_FN int32_t row_of(uint64_t at) const { return rows_.GetValue(at / tiles_.count()); }
  SPEC_FN uint32_t tile_of(uint64_t at) const {
    return static_cast<uint32_t>(at % tiles_.count());
  }

  SPEC_FN void fetch(uint64_t at) {
    const uint32_t tile = tile_of(at);
    const uint32_t num_words = (tiles_.length(tile) + 31) / 32;
    const uint64_t first = at / tiles_.count() * args_.num_words + tiles_.first_column(tile) / 32;
    LocalTensor<uint32_t> bits = bits_.template AllocTensor<uint32_t>();
    AscendC::DataCopyPad(bits, words_[first],
                         AscendC::DataCopyExtParams(1, num_words * 4, 0, 0, 0),
                         AscendC::DataCopyPadExtParams<uint32_t>(false, 0, 0, 0));
    bits_.EnQue(bits);
    tiles_.fetch(static_cast<uint32_t>(row_of(at)), tile);
  }

  SPEC_FN void mask(uint64_t at) {
    const uint32_t tile = tile_of(at), n = tiles_.length(tile);
    LocalTensor<uint32_t> bits = bits_.template DeQue<uint32_t>();
    const LocalTensor<float> x = tiles_.take(tile);
    LocalTensor<In> masked = masked_.template AllocTensor<In>();
    if constexpr (sizeof(In) == 4) {
      AscendC::Select(masked, bits, x, -kInfinity, AscendC::SELMODE::VSEL_TENSOR_SCALAR_MODE, n);
    } else {
      // bfloat16 cannot be selected; there and back again every value stays what it is.
      AscendC::Select(x, bits, x, -kInfinity, AscendC::SELMODE::VSEL_TENSOR_SCALAR_MODE, n);
      vector_order();
      AscendC::Cast(masked, x, AscendC::RoundMode::CAST_RINT, n);
    }
    tiles_.release();
    bits_.FreeTensor(bits);
    masked_.EnQue(masked);
    masked = masked_.template DeQue<In>();
    const uint64_t row = static_cast<uint64_t>(row_of(at));
    AscendC::DataCopyPad(logits_[row * args_.row_stride + tiles_.first_column(tile)], masked,
                         AscendC::DataCopyExtParams(1, n * sizeof(In), 0, 0, 0));
    masked_.FreeTensor(masked);
  }

  GrammarArguments args_;
  Tiles<In> tiles_;
  GlobalTensor<In> logits_;
  GlobalTensor<uint32_t> words_;
  GlobalTensor<int32_t> rows_;
  AscendC::TQue<AscendC::TPosition::VECIN, 2> bits_;
  AscendC::TQue<AscendC::TPosition::VECOUT, 2> masked_;
};

static_assert(input_bytes(4) + 2 * kFloats + 2 * kTile / 8 <= kUsable,
              "grammar_mask's buffers do not fit: shorten kTile");

}  // namespace spec
