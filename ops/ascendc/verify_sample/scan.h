// Phase 1: each tile's largest logit and the sum of exp((x - largest) / T), one look at the logits.
#pragma once
#include "context.h"

namespace spec {

// A tile's record. `sum` leaves the draft's weight out.
enum TileLane : uint32_t { kTop = 0, kSum = 1, kDraftWeight = 2, kDraftLogit = 3 };
// Of greedy requests: kTop and the token, as bits.
constexpr uint32_t kToken = 1;

template <typename In>
class Scan {
 public:
  SPEC_FN explicit Scan(Context<In>& context) : c(context) {}

  // Scans this core's share of all rows.
  SPEC_FN void run() {
    const Split cut = c.split();
    const uint64_t end = cut.first(c.core + 1);
    uint64_t at = cut.first(c.core);
    if (at == end) return;
    Request request = c.request(c.requests.of_row(static_cast<uint32_t>(at / c.num_tiles)));
    while (at < end) {
      const auto row = static_cast<uint32_t>(at / c.num_tiles);
      const auto begin = static_cast<uint32_t>(at % c.num_tiles);
      const auto stop = least(c.num_tiles, begin + static_cast<uint32_t>(end - at));
      if (row > c.row_of(request, request.num_drafts)) request = c.request(request.index + 1);
      scan(request, row - c.row_of(request, 0), begin, stop);
      at += stop - begin;
    }
  }

  // Scans tiles [begin, end) of one row.
  SPEC_FN void scan(const Request& request, uint32_t position, uint32_t begin, uint32_t end) {
    const uint32_t row = c.row_of(request, position);
    beta_ = request.beta;
    draft_ = c.draft_at(request, position);
    with_blocks_ = !request.greedy && c.top_k_on(request.index);
    c.tiles.fetch(row, begin);
    for (uint32_t tile = begin; tile < end; ++tile) {
      if (tile + 1 < end) c.tiles.fetch(row, tile + 1);
      const LocalTensor<float> x = c.tiles.take(tile);
      const uint32_t at = (tile - begin) * kRecord;
      if (request.greedy) {
        scan_greedy(x, tile, at);
      } else {
        scan_sampled(x, row, tile, at);
      }
      c.tiles.release();
    }
    copy_out(c.tile_records[(static_cast<uint64_t>(row) * c.num_tiles + begin) * kRecord],
             c.records, (end - begin) * kRecord);
    // All copies out of the ring end before its first place is used again.
    order<HardEvent::MTE3_V>();
    ring_ = 0;
  }

 private:
  SPEC_FN void scan_greedy(const LocalTensor<float>& x, uint32_t tile, uint32_t at) {
    const uint32_t n = c.tiles.length(tile);
    float top = largest_with_place(x, n);
    if (is_nan(top)) {
      drop_nan(x, c.mask, round_up(n, kLanes));
      top = largest_with_place(x, n);
    }
    const uint32_t place = bits_of(c.cells.GetValue(1));
    end_scalar();
    c.records.SetValue(at + kTop, top);
    c.records.template ReinterpretCast<uint32_t>().SetValue(at + kToken,
                                                            c.tiles.first_column(tile) + place);
  }

  SPEC_FN float largest_with_place(const LocalTensor<float>& x, uint32_t n) {
    end_scalar();
    AscendC::ReduceMax(c.cells, x, c.sums, static_cast<int32_t>(n), true);
    begin_scalar();
    return c.cells.GetValue(0);
  }

  SPEC_FN void scan_sampled(const LocalTensor<float>& x, uint32_t row, uint32_t tile, uint32_t at) {
    const uint32_t n = round_up(c.tiles.length(tile), kLanes);
    float sum = 0.0f;
    // There is a second turn only if the tile has NaN, which shows in its maximum or in its sum.
    for (uint32_t turn = 0; turn < 2; ++turn) {
      top_ = with_blocks_ ? top_of_blocks(x, n) : top_of(x, n);
      draft_weight_ = 0.0f;
      draft_logit_ = -kInfinity;
      sum = is_nan(top_) || top_ == -kInfinity ? 0.0f : sum_of(x, tile, n);
      if (!is_nan(top_) && !is_nan(sum)) break;
      drop_nan(x, c.mask, n);
    }
    if (with_blocks_) leave_blocks(row, tile);
    c.records.SetValue(at + kTop, top_);
    c.records.SetValue(at + kSum, sum);
    c.records.SetValue(at + kDraftWeight, draft_weight_);
    c.records.SetValue(at + kDraftLogit, draft_logit_);
  }

  SPEC_FN float top_of(const LocalTensor<float>& x, uint32_t n) {
    AscendC::ReduceMax(c.cells, x, c.sums, static_cast<int32_t>(n), false);
    return read_one(c.cells, 0);
  }

  // With the maxima of kLanes interleaved blocks of the tile, from which the search for the k-th
  // largest logit starts.
  SPEC_FN float top_of_blocks(const LocalTensor<float>& x, uint32_t n) {
    uint32_t half = kLanes;
    if (n > kLanes) {
      half = round_up(n / 2, kLanes);
      AscendC::Max(c.work, x, x[half], static_cast<int32_t>(n - half));
      if (2 * half > n) AscendC::DataCopy(c.work[n - half], x[n - half], 2 * half - n);
    } else {
      AscendC::DataCopy(c.work, x, kLanes);
    }
    vector_order();
    fold_max(c.work, half);
    AscendC::ReduceMax(c.cells, c.work, c.sums, static_cast<int32_t>(kLanes), false);
    return read_one(c.cells, 0);
  }

  // One place of the ring of blocks a tile.
  SPEC_FN void leave_blocks(uint32_t row, uint32_t tile) {
    constexpr uint32_t places = 2 * kPivots;
    if (ring_ == places) {
      order<HardEvent::MTE3_V>();
      ring_ = 0;
    }
    const LocalTensor<float> place = c.factors[ring_++ * kLanes];
    AscendC::DataCopy(place, c.work, kLanes);
    order<HardEvent::V_MTE3>();
    AscendC::DataCopyPad(
        c.block_maxima[(static_cast<uint64_t>(row) * c.num_tiles + tile) * kLanes], place,
        AscendC::DataCopyExtParams(1, kLanes * 4, 0, 0, 0));
  }

  SPEC_FN float sum_of(const LocalTensor<float>& x, uint32_t tile, uint32_t n) {
    if (top_ == kInfinity) {
      AscendC::Duplicate(c.weights, 1.0f, static_cast<int32_t>(n));
      AscendC::CompareScalar(c.mask, x, kInfinity, AscendC::CMPMODE::GE, n);
      vector_order();
      AscendC::Select(c.weights, c.mask, c.weights, 0.0f,
                      AscendC::SELMODE::VSEL_TENSOR_SCALAR_MODE, n);
      vector_order();
    } else {
      exponentials(c.weights, x, top_, beta_, n);
    }
    if (c.draft_in(draft_, tile)) take_draft(x, c.place_in_tile(draft_));
    return take_sum(c.weights, n, c.cells);
  }

  SPEC_FN void take_draft(const LocalTensor<float>& x, uint32_t place) {
    begin_scalar();
    const float logit = x.GetValue(place);
    if (!is_nan(logit)) {
      draft_logit_ = logit;
      draft_weight_ = c.weights.GetValue(place);
    }
    c.weights.SetValue(place, 0.0f);
    end_scalar();
  }

  Context<In>& c;
  float beta_;
  int32_t draft_;
  bool with_blocks_;
  uint32_t ring_ = 0;
  float top_, draft_weight_, draft_logit_;
};

}  // namespace spec
