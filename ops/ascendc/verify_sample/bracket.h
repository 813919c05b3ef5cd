// The threshold search of one row: which bracket to look at next, until the threshold is known.
//
// min-p is a bound below, known at once. top-k and then top-p each look for the largest logit v for
// which the tokens at v and above are enough: k of them, or top-p of the mass that top-k has left.
#pragma once
#include "pass.h"

namespace spec {

// Distance of neighbouring values of a type, in places of float32.
template <typename In>
struct Grid {
  static constexpr int64_t kStep = 1 << 13;  // half
};
template <>
struct Grid<bfloat16_t> {
  static constexpr int64_t kStep = 1 << 16;
};
template <>
struct Grid<float> {
  static constexpr int64_t kStep = 1;
};

template <typename In>
class BracketSearch {
 public:
  enum class Stage : uint32_t { kTopK, kTopP, kWeigh, kDone };

  Row row;  // threshold, rest and draft_weight are those after the filters once it is done
  Bracket bracket;
  float pivots[kPivots];

  SPEC_FN bool done() const { return stage_ == Stage::kDone; }

  // For an unfiltered row whose records and factors are at hand. Greedy requests have none.
  SPEC_FN void begin(Context<In>& c, const Request& request, const Row& unfiltered) {
    row = unfiltered;
    const float top_p = c.has(kHasTopP) ? c.top_p.GetValue(request.index) : 1.0f;
    const float min_p = c.has(kHasMinP) ? c.min_p.GetValue(request.index) : 0.0f;
    const bool by_count = c.top_k_on(request.index);
    top_p_ = top_p;
    if (row.state != RowState::kNormal || !(by_count || top_p < 1.0f || min_p > 0.0f)) {
      stage_ = Stage::kDone;
      return;
    }
    const float floor = lowest(c, request.temperature, min_p);
    bracket = Bracket{floor, kInfinity, 0.0f, 0.0f};
    if (by_count) {
      stage_ = Stage::kTopK;
      goal_ = Goal{false, static_cast<float>(c.top_k.GetValue(request.index))};
      bracket.low = bound_by_blocks(c, floor);
    } else if (top_p < 1.0f) {
      stage_ = Stage::kTopP;
      // With min-p the mass that counts is known after the first pass.
      goal_ = Goal{true, min_p > 0.0f ? -1.0f : top_p * row.total()};
      if (min_p <= 0.0f) bracket.low = bound_by_tail(c, request.temperature, floor);
    } else {
      stage_ = Stage::kWeigh;
    }
    choose_pivots();
  }

  // What a pass over the whole row has found. If totals.whole, c.list holds it.
  SPEC_FN void advance(Context<In>& c, const Totals& totals) {
    if (stage_ == Stage::kTopK && reached(totals, 0) < goal_.least) {
      // Fewer than k are left by min-p, or have any weight.
      after_top_k(bracket.low, totals.mass[0]);
    }
    if (stage_ == Stage::kWeigh) finish(bracket.low, totals.mass[0]);
    if (stage_ == Stage::kTopP && goal_.least < 0.0f) goal_.least = top_p_ * reached(totals, 0);
    if (done()) return;
    if (totals.whole) {
      end_in_list(c, totals.listed);
    } else {
      narrow(totals);
    }
    if (!done()) choose_pivots();
  }

 private:
  // Weights below exp(-88) vanish in float32.
  SPEC_FN float lowest(Context<In>& c, float temperature, float min_p) {
    float floor = at_least(moved(row.top - 88.0f * temperature, -2), -kLargest);
    if (min_p > 0.0f) floor = at_least(floor, min_p_bound(c, temperature, min_p));
    return floor;
  }

  // The smallest float32 at top + T ln(min_p) or above: rounded up, for the sum may not be one.
  SPEC_FN float min_p_bound(Context<In>& c, float temperature, float min_p) {
    const float step = temperature * logarithm(c, min_p);
    const float sum = row.top + step;
    if (!(sum > -kLargest)) return -kLargest;
    const float back = sum - row.top;
    const float lost = (row.top - (sum - back)) + (step - back);
    return lost > 0.0f ? moved(sum, 1) : sum;
  }

  // Tokens below top - T L together have no more than vocab_size * exp(-L), relative to the top;
  // with L from here that is at most what top-p leaves out.
  SPEC_FN float bound_by_tail(Context<In>& c, float temperature, float floor) {
    const float left_out = (1.0f - top_p_) * row.total();
    const float tail = logarithm(c, static_cast<float>(c.args.vocab_size) / left_out) + 0.01f;
    return at_least(moved(row.top - temperature * tail, -2), floor);
  }

  // The k-th largest of the blocks' maxima: k logits are at it or above.
  SPEC_FN float bound_by_blocks(Context<In>& c, float floor) {
    const uint32_t blocks = c.num_tiles * kLanes;
    if (goal_.least > static_cast<float>(blocks)) return floor;
    copy_in(c.list, c.block_maxima[static_cast<uint64_t>(row.index) * blocks], blocks);
    Select<In> select(c);
    if (static_cast<float>(select.count_from(floor, blocks)) < goal_.least) return floor;
    Row no_draft = row;  // its logit is in its block's maximum
    no_draft.draft_logit = -kInfinity;
    return select.find(no_draft, bracket, goal_, blocks);
  }

  SPEC_FN float logarithm(Context<In>& c, float value) {
    for (uint32_t i = 0; i < kRecord; ++i) c.cells.SetValue(i, value);
    end_scalar();
    AscendC::Ln(c.cells, c.cells, static_cast<int32_t>(kRecord));
    return read_one(c.cells, 0);
  }

  static SPEC_FN float at_least(float value, float bound) { return value > bound ? value : bound; }

  // Tokens, or weight, at a pivot and above.
  SPEC_FN float reached(const Totals& totals, uint32_t j) const {
    const bool with_draft = row.draft_logit >= pivots[j];
    if (goal_.by_mass) {
      return bracket.mass + totals.mass[j] + (with_draft ? row.draft_weight : 0.0f);
    }
    return bracket.count + totals.count[j] + (with_draft ? 1.0f : 0.0f);
  }

  // The threshold is known; `rest` is the weight at it and above, without the draft's.
  SPEC_FN void finish(float threshold, float rest) {
    row.threshold = threshold;
    row.rest = rest;
    if (row.draft_logit < threshold) row.draft_weight = 0.0f;
    stage_ = Stage::kDone;
  }
  SPEC_FN void after_top_k(float threshold, float rest) {
    if (!(top_p_ < 1.0f)) {
      finish(threshold, rest);
      return;
    }
    const float draft = row.draft_logit >= threshold ? row.draft_weight : 0.0f;
    stage_ = Stage::kTopP;
    goal_ = Goal{true, top_p_ * (rest + draft)};
    bracket = Bracket{threshold, kInfinity, 0.0f, 0.0f};
  }

  SPEC_FN void end_in_list(Context<In>& c, uint32_t listed) {
    Select<In> select(c);
    const Bracket searched = bracket;
    float found = select.find(row, bracket, goal_, listed);
    float rest = searched.mass + select.mass_from(row, found, listed);
    if (stage_ == Stage::kTopP) {
      finish(found, rest);
      return;
    }
    after_top_k(found, rest);
    if (done() || searched.high < kInfinity) return;  // the list lacks what top-p may keep
    found = select.find(row, bracket, goal_, listed);
    finish(found, select.mass_from(row, found, listed));
  }

  SPEC_FN void narrow(const Totals& totals) {
    float low = bracket.low, high = bracket.high;
    uint32_t at_low = 0, at_high = 0;
    for (uint32_t j = 1; j < kPivots; ++j) {
      if (reached(totals, j) >= goal_.least) {
        if (pivots[j] > low) {
          low = pivots[j];
          at_low = j;
        }
      } else if (pivots[j] < high) {
        high = pivots[j];
        at_high = j;
      }
    }
    if (above(low) >= place_of_end(high)) {
      const float rest = bracket.mass + totals.mass[at_low];
      if (stage_ == Stage::kTopP) {
        finish(low, rest);
      } else {
        after_top_k(low, rest);
      }
      return;
    }
    if (at_high != 0) {
      bracket.count += totals.count[at_high];
      bracket.mass += totals.mass[at_high];
    }
    bracket.low = low;
    bracket.high = high;
  }

  // The next value of the type above `low`, and the end of a bracket, as places.
  SPEC_FN int64_t above(float low) const {
    const int64_t place = ordered(low), step = Grid<In>::kStep;
    const int64_t down = place >= 0 ? place / step : -((-place + step - 1) / step);
    return (down + 1) * step;
  }
  SPEC_FN int64_t place_of_end(float high) const {
    return high < kInfinity ? ordered(high) : ordered(row.top) + 1;
  }

  // The lower end, four even steps in value, and three in place: the first are quick where values
  // are of a size, the others bound the number of passes wherever the values are.
  SPEC_FN void choose_pivots() {
    const int64_t first = above(bracket.low), end = place_of_end(bracket.high);
    const float high = bracket.high < kInfinity ? bracket.high : row.top;
    pivots[0] = bracket.low;
    for (uint32_t j = 1; j < 5; ++j) {
      const float share = 0.2f * static_cast<float>(j);
      pivots[j] = snapped(ordered((1.0f - share) * bracket.low + share * high), first, end);
    }
    for (uint32_t j = 5; j < kPivots; ++j) {
      const int64_t quarter = (end - first) / 4;
      pivots[j] = snapped(first + quarter * static_cast<int64_t>(j - 4), first, end);
    }
  }
  SPEC_FN float snapped(int64_t place, int64_t first, int64_t end) const {
    const int64_t step = Grid<In>::kStep;
    if (place >= end) place = end - 1;
    if (place <= first) return from_ordered(first < end ? first : end - 1);
    return from_ordered(first + (place - first) / step * step);
  }

  Stage stage_ = Stage::kDone;
  Goal goal_;
  float top_p_;
};

}  // namespace spec
