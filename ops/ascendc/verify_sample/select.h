// The end of a threshold search: a list of logits that holds the threshold, in the unified buffer.
#pragma once
#include "context.h"

namespace spec {

// Where the threshold may be: at `low` or above, below `high`. Counts and weights of the tokens at
// `high` and above leave the draft out.
struct Bracket {
  float low, high;
  float count, mass;
};

struct Goal {
  bool by_mass;
  float least;  // how many tokens, or how much weight, are at the threshold and above
};

template <typename In>
class Select {
 public:
  SPEC_FN explicit Select(Context<In>& context) : c(context) {}

  // The largest value at `low` or above for which the goal is reached. c.list[0, listed) holds the
  // logits of the bracket but the draft's, and smaller ones, in any order.
  SPEC_FN float find(const Row& row, const Bracket& bracket, const Goal& goal, uint32_t listed) {
    LocalTensor<float> held = c.work, other = c.tiles.borrow();
    AscendC::Duplicate(other, 0.0f, static_cast<int32_t>(kTile));
    vector_order();
    uint32_t n = from(held, c.list, bracket.low, AscendC::CMPMODE::GE, listed);
    float above = goal.by_mass ? bracket.mass : bracket.count;
    if (row.draft_logit >= bracket.high) {
      above += goal.by_mass ? row.draft_weight : 1.0f;
    } else if (row.draft_logit >= bracket.low) {
      begin_scalar();
      held.SetValue(n++, row.draft_logit);
      end_scalar();
    }
    float found = bracket.low;
    while (n > 0) {
      const float most = extreme(held, n, true), fewest = extreme(held, n, false);
      found = most;
      if (most == fewest) break;
      float pivot = 0.5f * fewest + 0.5f * most;
      if (!(pivot > fewest)) pivot = most;
      const uint32_t upper = from(other, held, pivot, AscendC::CMPMODE::GE, n);
      const float reached =
          above + (goal.by_mass ? mass(row, other, upper) : static_cast<float>(upper));
      if (reached >= goal.least) {
        n = upper;
      } else {
        above = reached;
        n = from(other, held, pivot, AscendC::CMPMODE::LT, n);
      }
      const LocalTensor<float> swapped = held;
      held = other;
      other = swapped;
    }
    c.tiles.give_back();
    return found;
  }

  SPEC_FN uint32_t count_from(float low, uint32_t listed) {
    return from(c.work, c.list, low, AscendC::CMPMODE::GE, listed);
  }

  // Weight of the list's values at `low` and above.
  SPEC_FN float mass_from(const Row& row, float low, uint32_t listed) {
    const uint32_t n = from(c.work, c.list, low, AscendC::CMPMODE::GE, listed);
    return mass(row, c.work, n);
  }

 private:
  SPEC_FN uint32_t from(const LocalTensor<float>& kept, const LocalTensor<float>& x, float bound,
                        AscendC::CMPMODE mode, uint32_t n) {
    if (n == 0) return 0;
    AscendC::CompareScalar(c.mask, x, bound, mode, round_up(n, kLanes));
    vector_order();
    return gather(kept, x, c.mask, n);
  }

  SPEC_FN float extreme(const LocalTensor<float>& x, uint32_t n, bool largest) {
    if (largest) {
      AscendC::ReduceMax(c.cells, x, c.sums, static_cast<int32_t>(n), false);
    } else {
      AscendC::ReduceMin(c.cells, x, c.sums, static_cast<int32_t>(n), false);
    }
    return read_one(c.cells, 0);
  }

  SPEC_FN float mass(const Row& row, const LocalTensor<float>& x, uint32_t n) {
    if (n == 0) return 0.0f;
    const uint32_t end = round_up(n, kLanes);
    AscendC::Duplicate(c.weights[end - kLanes], 0.0f, static_cast<int32_t>(kLanes));
    vector_order();
    exponentials(c.weights, x, row.top, row.beta, n);
    return take_sum(c.weights, end, c.cells);
  }

  Context<In>& c;
};

}  // namespace spec
