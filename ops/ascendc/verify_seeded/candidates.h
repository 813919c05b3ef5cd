// Tokens of a row that may be its sample, until the vector unit tells which of them reaches most.
#pragma once
#include "noise.h"

namespace spec {

// The sample of the tiles looked at so far: the token that reaches most, log(weight / noise) beside
// the largest logit, which weighs 1.
struct Sampled {
  float top = -kInfinity;
  float reached = -kInfinity;
  int32_t token = 0;  // of a row with nothing above -inf

  SPEC_FN void raise(float new_top, float beta) {
    if (!(new_top > top)) return;
    // From -inf, and to infinity, nothing of what was is left.
    reached += (top - new_top) * beta;
    top = new_top;
  }
  SPEC_FN void take(float other_reached, int32_t other_token) {
    const bool first = other_reached == reached && other_token < token;
    if (other_reached > reached || (first && reached > -kInfinity)) {
      reached = other_reached;
      token = other_token;
    }
  }
  // Tokens that cannot reach this have lost. Rounding is left room.
  SPEC_FN float goal() const {
    const float size = reached < 0.0f ? -reached : reached;
    return reached - 1e-3f - 1e-6f * size;
  }
};

template <typename In>
class Candidates {
 public:
  SPEC_FN Candidates(Context<In>& context, const LeastNumbers<In>& least)
      : c(context), least_(least) {}

  // With log(weight) beside the largest logit. The scalar unit has its turn.
  SPEC_FN void add(const NoiseSource& source, uint32_t token, float distance, Sampled& best) {
    const uint32_t group = token / kGroup, place = token % kGroup;
    const bool has_least = least_.place(group) == place;
    words().SetValue(count_, least_.word(group));
    words().SetValue(kMost + count_,
                     has_least ? 0 : static_cast<int32_t>(source.word(group, place)));
    others().SetValue(count_, has_least ? 0.0f : 1.0f);
    distances().SetValue(count_, distance);
    tokens().SetValue(count_, static_cast<int32_t>(token));
    if (++count_ == kMost) judge(best);
  }

  // Empties the list into `best`. The scalar unit has its turn before and after.
  SPEC_FN void judge(Sampled& best) {
    if (count_ == 0) return;
    constexpr auto n = static_cast<int32_t>(kMost);
    const Scratch scratch = least_.scratch();
    const LocalTensor<float> numbers = scratch.d, beyond = numbers[kMost];
    end_scalar();
    exponential_numbers(numbers, words(), scratch, 2 * kMost);
    AscendC::Muls(numbers, numbers, 1.0f / kGroup, n);
    AscendC::Mul(beyond, beyond, others(), n);
    vector_order();
    AscendC::Add(numbers, numbers, beyond, n);
    vector_order();
    AscendC::Ln(numbers, numbers, n);
    vector_order();
    AscendC::Sub(numbers, distances(), numbers, n);
    vector_order();
    AscendC::ReduceMax(c.cells, numbers, c.sums, static_cast<int32_t>(count_), true);
    begin_scalar();
    best.take(c.cells.GetValue(0), tokens().GetValue(bits_of(c.cells.GetValue(1))));
    count_ = 0;
  }

 private:
  static constexpr uint32_t kMost = kLanes;

  // The random words: first those of the least numbers, then the tokens' own.
  SPEC_FN Words words() const { return c.factors.template ReinterpretCast<int32_t>(); }
  SPEC_FN LocalTensor<float> distances() const { return c.factors[2 * kMost]; }
  // 0 where the least number is the token's.
  SPEC_FN LocalTensor<float> others() const { return c.factors[3 * kMost]; }
  SPEC_FN Words tokens() const { return c.chances.template ReinterpretCast<int32_t>(); }
  static_assert(kMost <= kMaxDrafts + 1 && 8 * kMost <= kMaxTiles * kRecord, "see the context");

  Context<In>& c;
  const LeastNumbers<In>& least_;
  uint32_t count_ = 0;
};

}  // namespace spec
