// One pass of a threshold search over a row's tiles: the logits of a bracket are listed, counted
// and weighed at several pivots. Only what lies in the bracket costs more than a comparison.
#pragma once
#include "select.h"
#include "weigh.h"

namespace spec {

// Of the logits in the bracket, without the draft: those at pivot j and above.
struct Totals {
  float count[kPivots];
  float mass[kPivots];
  uint32_t listed;  // length of the list
  bool whole;       // whether the list has them all
};

template <typename In>
class Pass {
 public:
  SPEC_FN explicit Pass(Context<In>& context) : c(context) {}

  // Tiles [begin, end) of the row, whose records are in c.records. The list is left in c.list.
  SPEC_FN void run(const Row& row, const Bracket& bracket, const float pivots[kPivots],
                   uint32_t begin, uint32_t end, Totals& totals) {
    totals.listed = 0;
    totals.whole = true;
    AscendC::Duplicate(c.sums, 0.0f, static_cast<int32_t>(2 * kPivots * kLanes));
    vector_order();
    uint32_t tile = next(begin, end, bracket.low);
    if (tile < end) c.tiles.fetch(row.index, tile);
    while (tile < end) {
      const uint32_t following = next(tile + 1, end, bracket.low);
      if (following < end) c.tiles.fetch(row.index, following);
      const LocalTensor<float> x = c.tiles.take(tile);
      look(x, row, bracket, pivots, tile, totals);
      c.tiles.release();
      tile = following;
    }
    read(totals);
  }

 private:
  SPEC_FN uint32_t next(uint32_t tile, uint32_t end, float low) const {
    while (tile < end && c.records.GetValue(tile * kRecord + kTop) < low) ++tile;
    return tile;
  }

  SPEC_FN void look(const LocalTensor<float>& x, const Row& row, const Bracket& bracket,
                    const float pivots[kPivots], uint32_t tile, Totals& totals) {
    const uint32_t n = c.tiles.length(tile);
    if (c.draft_in(row.draft, tile)) {
      begin_scalar();
      x.SetValue(c.place_in_tile(row.draft), -kInfinity);
      end_scalar();
    }
    const uint32_t found = inside(x, bracket, n);
    if (found == 0) return;
    append(found, totals);
    const uint32_t end = round_up(found, kLanes);
    AscendC::Duplicate(c.weights[end - kLanes], 0.0f, static_cast<int32_t>(kLanes));
    vector_order();
    exponentials(c.weights, c.work, row.top, row.beta, found);
    for (uint32_t j = 0; j < kPivots; ++j) add(x, pivots[j], found, j);
  }

  // Puts the tile's logits in the bracket into c.work.
  SPEC_FN uint32_t inside(const LocalTensor<float>& x, const Bracket& bracket, uint32_t n) {
    const uint32_t whole = round_up(n, kLanes);
    AscendC::CompareScalar(c.mask, x, bracket.low, AscendC::CMPMODE::GE, whole);
    if (bracket.high < kInfinity) {
      AscendC::CompareScalar(c.other_mask, x, bracket.high, AscendC::CMPMODE::LT, whole);
      vector_order();
      const LocalTensor<uint16_t> bits = c.mask.template ReinterpretCast<uint16_t>();
      AscendC::And(bits, bits, c.other_mask.template ReinterpretCast<uint16_t>(),
                   static_cast<int32_t>(whole / 16));
    }
    vector_order();
    return gather(c.work, x, c.mask, n);
  }

  // Adds c.work[0, found) to the list, with -inf up to a whole data block.
  SPEC_FN void append(uint32_t found, Totals& totals) {
    const uint32_t end = round_up(found, kRecord);
    if (found < end) {
      begin_scalar();
      for (uint32_t i = found; i < end; ++i) c.work.SetValue(i, -kInfinity);
      end_scalar();
    }
    if (totals.listed + end > kListed) totals.whole = false;
    if (!totals.whole) return;
    AscendC::DataCopy(c.list[totals.listed], c.work, end);
    vector_order();
    totals.listed += end;
  }

  // Counts and weighs c.work[0, found) at a pivot; x is scratch now.
  SPEC_FN void add(const LocalTensor<float>& x, float pivot, uint32_t found, uint32_t j) {
    const uint32_t end = round_up(found, kLanes);
    AscendC::CompareScalar(c.mask, c.work, pivot, AscendC::CMPMODE::GE, end);
    vector_order();
    AscendC::Select(x, c.mask, c.weights, 0.0f, AscendC::SELMODE::VSEL_TENSOR_SCALAR_MODE, end);
    vector_order();
    add_up(x, end, kPivots + j);
    AscendC::Duplicate(x[end - kLanes], 0.0f, static_cast<int32_t>(kLanes));
    vector_order();
    AscendC::Duplicate(x, 1.0f, static_cast<int32_t>(found));
    vector_order();
    AscendC::Select(x, c.mask, x, 0.0f, AscendC::SELMODE::VSEL_TENSOR_SCALAR_MODE, end);
    vector_order();
    add_up(x, end, j);
  }

  SPEC_FN void add_up(const LocalTensor<float>& x, uint32_t n, uint32_t place) {
    fold_sum(x, n);
    const LocalTensor<float> sum = c.sums[place * kLanes];
    AscendC::Add(sum, sum, x, static_cast<int32_t>(kLanes));
    vector_order();
  }

  SPEC_FN void read(Totals& totals) {
    AscendC::WholeReduceSum<float>(c.cells, c.sums, static_cast<int32_t>(kLanes), 2 * kPivots, 1, 1,
                                   8);
    begin_scalar();
    for (uint32_t j = 0; j < kPivots; ++j) {
      totals.count[j] = c.cells.GetValue(j);
      totals.mass[j] = c.cells.GetValue(kPivots + j);
    }
    end_scalar();
  }

  Context<In>& c;
};

}  // namespace spec
