// A tile's weights: of the target, or of what remains of it without the draft.
#pragma once
#include "rows.h"

namespace spec {

// What the last token is drawn from.
enum class Source : uint32_t {
  kNone = 0,
  kTarget = 1,    // p
  kResidual = 2,  // max(weight * p - q, 0)
};

struct Job {
  Source source;
  float weight;  // of p; it makes no difference with one-hot drafts (docs/block_rule.md, lemma 7)
};

template <typename In>
class Weigh {
 public:
  SPEC_FN explicit Weigh(Context<In>& context) : c(context) {}

  // Leaves the weights of tile x in c.weights, with zeros up to a whole repeat.
  SPEC_FN void weigh(const LocalTensor<float>& x, const Row& row, uint32_t tile, const Job& job) {
    const uint32_t n = round_up(c.tiles.length(tile), kLanes);
    target(x, row, tile, n);
    if (job.source != Source::kResidual) return;
    if (c.has(kHasDraftProbs)) {
      subtract_draft(row, tile, job.weight, n);
    } else if (c.draft_in(row.draft, tile)) {
      begin_scalar();
      c.weights.SetValue(c.place_in_tile(row.draft), 0.0f);
      end_scalar();
    }
  }

 private:
  SPEC_FN void target(const LocalTensor<float>& x, const Row& row, uint32_t tile, uint32_t n) {
    const auto count = static_cast<int32_t>(n);
    if (row.state == RowState::kDead) {
      AscendC::Duplicate(c.weights, 0.0f, count);
      if (tile != 0) {
        vector_order();
        return;
      }
      begin_scalar();
      c.weights.SetValue(0, 1.0f);
      end_scalar();
      return;
    }
    const bool infinite = row.state == RowState::kInfinite;
    if (infinite) {
      AscendC::Duplicate(c.weights, 1.0f, count);
      vector_order();
    } else {
      exponentials(c.weights, x, row.top, row.beta, n);
    }
    // A comparison with -inf keeps everything but NaN.
    AscendC::CompareScalar(c.mask, x, infinite ? kInfinity : row.threshold, AscendC::CMPMODE::GE,
                           n);
    vector_order();
    AscendC::Select(c.weights, c.mask, c.weights, 0.0f, AscendC::SELMODE::VSEL_TENSOR_SCALAR_MODE,
                    n);
    vector_order();
  }

  SPEC_FN void subtract_draft(const Row& row, uint32_t tile, float weight, uint32_t n) {
    const uint32_t length = c.tiles.length(tile), filled = round_up(length, kRecord);
    order<HardEvent::V_MTE2>();
    AscendC::DataCopyPad(
        c.list, c.draft_probs[row.draft_row * c.args.draft_stride + c.tiles.first_column(tile)],
        AscendC::DataCopyExtParams(1, length * 4, 0, 0, 0),
        AscendC::DataCopyPadExtParams<float>(true, 0, static_cast<uint8_t>(filled - length), 0.0f));
    order<HardEvent::MTE2_V>();
    if (filled < n) {
      AscendC::Duplicate(c.list[filled], 0.0f, static_cast<int32_t>(n - filled));
    }
    AscendC::Muls(c.weights, c.weights, weight / row.total(), static_cast<int32_t>(n));
    vector_order();
    // A q of NaN or below 0 counts as 0. Not by a maximum: whether that passes NaN on is a mode of
    // the device.
    AscendC::CompareScalar(c.mask, c.list, 0.0f, AscendC::CMPMODE::GT, n);
    vector_order();
    AscendC::Select(c.list, c.mask, c.list, 0.0f, AscendC::SELMODE::VSEL_TENSOR_SCALAR_MODE, n);
    vector_order();
    AscendC::Sub(c.weights, c.weights, c.list, static_cast<int32_t>(n));
    vector_order();
    AscendC::Maxs(c.weights, c.weights, 0.0f, static_cast<int32_t>(n));
    vector_order();
  }

  Context<In>& c;
};

}  // namespace spec
