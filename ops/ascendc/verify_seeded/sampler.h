// Samples tiles of a row: the token whose noise, divided by its weight, is least.
//
// A group of tokens is looked into only if its likeliest token could win with the group's least
// number, and a token's own number is made only if it could. There are few: the scalar unit makes
// them, the vector unit the least numbers.
#pragma once
#include "../verify_sample/rows.h"
#include "candidates.h"

namespace spec {

// What to sample from: tokens at `threshold` and above.
struct Target {
  uint32_t row;
  float beta, threshold;
  bool filtered;  // the tiles' records are in c.records
};

template <typename In>
class Sampler {
 public:
  SPEC_FN explicit Sampler(Context<In>& context)
      : c(context), rows_(context), least_(context), candidates_(context, least_) {}

  // Tiles [begin, end) of a row. `best` comes with the row's largest logit if it is known.
  SPEC_FN void sample(const Target& target, const NoiseSource& source, uint32_t begin, uint32_t end,
                      Sampled& best) {
    const uint32_t groups = c.args.tile / kGroup, span = LeastNumbers<In>::kSpan / groups;
    low_ = target.threshold > -kLargest ? target.threshold : -kLargest;
    uint32_t tile = next(target, best, begin, end), prepared = tile;
    if (tile < end) c.tiles.fetch(target.row, tile);
    while (tile < end) {
      if (tile >= prepared) {
        prepared = least(end, tile + span);
        least_.prepare(source, tile * groups, groups_in(tile, prepared));
      }
      const uint32_t following = next(target, best, tile + 1, end);
      if (following < end) c.tiles.fetch(target.row, following);
      const LocalTensor<float> x = c.tiles.take(tile);
      look(x, target, source, tile, best);
      c.tiles.release();
      tile = following;
    }
  }

 private:
  SPEC_FN uint32_t groups_in(uint32_t begin, uint32_t end) const {
    const uint32_t columns = least(c.args.vocab_size, end * c.args.tile) - begin * c.args.tile;
    return (columns + kGroup - 1) / kGroup;
  }

  // Tiles in which the filters keep nothing are not read.
  SPEC_FN uint32_t next(const Target& target, const Sampled& best, uint32_t tile,
                        uint32_t end) const {
    if (!target.filtered) return tile;
    const float needed = best.top == kInfinity ? kInfinity : low_;
    while (tile < end && !(rows_.lane(tile, kTop) >= needed)) ++tile;
    return tile;
  }

  SPEC_FN void look(const LocalTensor<float>& x, const Target& target, const NoiseSource& source,
                    uint32_t tile, Sampled& best) {
    const uint32_t length = c.tiles.length(tile), groups = (length + kGroup - 1) / kGroup;
    const uint32_t filled = round_up(length, kLanes);
    if (filled < groups * kGroup) {
      AscendC::Duplicate(x[filled], -kInfinity, static_cast<int32_t>(kLanes));
      vector_order();
    }
    float top = top_of_groups(x, groups);
    if (is_nan(top)) {
      drop_nan(x, c.mask, groups * kGroup);
      top = top_of_groups(x, groups);
    }
    if (top == -kInfinity || (best.top == kInfinity && top < kInfinity)) return;
    best.raise(top, target.beta);
    float reference = best.top;
    if (top == kInfinity) {
      // Infinite logits share all of the weight.
      to_zero(x, groups * kGroup);
      top_of_groups(x, groups);
      reference = 0.0f;
    }
    look_into_groups(x, reference, target.beta, source, tile, groups, best);
  }

  // Leaves the largest logit of each group in maxima(), with -inf up to a whole repeat.
  SPEC_FN float top_of_groups(const LocalTensor<float>& x, uint32_t groups) {
    const LocalTensor<float> halves = least_.half_tile();
    const auto repeats = static_cast<int32_t>(groups);
    AscendC::Duplicate(maxima(), -kInfinity, static_cast<int32_t>(kLanes));
    AscendC::Max(halves, x, x[kLanes], static_cast<uint64_t>(kLanes), repeats,
                 AscendC::BinaryRepeatParams(1, 1, 1, 8, 16, 16));
    vector_order();
    AscendC::WholeReduceMax<float>(maxima(), halves, static_cast<int32_t>(kLanes), repeats, 1, 1, 8,
                                   AscendC::ReduceOrder::ORDER_ONLY_VALUE);
    vector_order();
    AscendC::ReduceMax(c.cells, maxima(), c.sums, static_cast<int32_t>(kLanes), false);
    return read_one(c.cells, 0);
  }

  // +inf becomes 0, all else -inf.
  SPEC_FN void to_zero(const LocalTensor<float>& x, uint32_t n) {
    AscendC::CompareScalar(c.mask, x, kInfinity, AscendC::CMPMODE::GE, n);
    vector_order();
    AscendC::Duplicate(x, 0.0f, static_cast<int32_t>(n));
    vector_order();
    AscendC::Select(x, c.mask, x, -kInfinity, AscendC::SELMODE::VSEL_TENSOR_SCALAR_MODE, n);
    vector_order();
  }

  SPEC_FN void look_into_groups(const LocalTensor<float>& x, float reference, float beta,
                                const NoiseSource& source, uint32_t tile, uint32_t groups,
                                Sampled& best) {
    const uint32_t first = c.tiles.first_column(tile);
    const float low = best.top == kInfinity ? 0.0f : low_;
    find_bounds(reference, beta, low, first / kGroup, groups);
    AscendC::ReduceMax(c.cells, bounds(), c.sums, static_cast<int32_t>(kLanes), true);
    begin_scalar();
    const float most = c.cells.GetValue(0);
    const uint32_t likeliest = bits_of(c.cells.GetValue(1));
    if (!(most >= best.goal()) || most == -kInfinity) {
      end_scalar();
      return;
    }
    end_scalar();
    // The likeliest token of the likeliest group first: then few others are left.
    AscendC::ReduceMax(c.cells, x[likeliest * kGroup], c.sums, static_cast<int32_t>(kGroup), true);
    begin_scalar();
    const uint32_t place = likeliest * kGroup + bits_of(c.cells.GetValue(1));
    candidates_.add(source, first + place, (c.cells.GetValue(0) - reference) * beta, best);
    candidates_.judge(best);
    end_scalar();
    AscendC::CompareScalar(c.mask, bounds(), best.goal(), AscendC::CMPMODE::GE, kLanes);
    begin_scalar();
    const LocalTensor<uint32_t> bits = c.mask.template ReinterpretCast<uint32_t>();
    const uint32_t chosen[2] = {bits.GetValue(0), bits.GetValue(1)};
    for (uint32_t group = 0; group < groups; ++group) {
      if ((chosen[group / 32] >> (group % 32) & 1u) == 0) continue;
      look_into(x[group * kGroup], reference, beta, low, source, first + group * kGroup, best);
    }
    candidates_.judge(best);
    end_scalar();
  }

  // What no token of a group can exceed: its largest logit with its least number. -inf for groups
  // of which the filters keep nothing.
  SPEC_FN void find_bounds(float reference, float beta, float low, uint32_t first_group,
                           uint32_t groups) {
    constexpr auto lanes = static_cast<int32_t>(kLanes);
    AscendC::CompareScalar(c.mask, maxima(), low, AscendC::CMPMODE::GE, kLanes);
    AscendC::Adds(bounds(), maxima(), -reference, lanes);
    vector_order();
    AscendC::Muls(bounds(), bounds(), beta, lanes);
    vector_order();
    AscendC::Add(bounds(), bounds(), least_.gains(first_group), static_cast<int32_t>(groups));
    vector_order();
    AscendC::Select(bounds(), c.mask, bounds(), -kInfinity,
                    AscendC::SELMODE::VSEL_TENSOR_SCALAR_MODE, kLanes);
    vector_order();
  }

  // A group's tokens that could win. The scalar unit has its turn before and after.
  SPEC_FN void look_into(const LocalTensor<float>& x, float reference, float beta, float low,
                         const NoiseSource& source, uint32_t first, Sampled& best) {
    constexpr auto n = static_cast<int32_t>(kGroup);
    const float needed = best.goal() - least_.gain(first / kGroup);
    end_scalar();
    AscendC::Adds(distances(), x, -reference, n);
    vector_order();
    AscendC::Muls(distances(), distances(), beta, n);
    vector_order();
    AscendC::CompareScalar(c.mask, distances(), needed, AscendC::CMPMODE::GE, kGroup);
    begin_scalar();
    const LocalTensor<uint32_t> bits = c.mask.template ReinterpretCast<uint32_t>();
    uint32_t chosen[kGroup / 32];
    for (uint32_t i = 0; i < kGroup / 32; ++i) chosen[i] = bits.GetValue(i);
    for (uint32_t i = 0; i < kGroup / 32; ++i) {
      for (uint32_t place = 32 * i; chosen[i] != 0; ++place, chosen[i] >>= 1) {
        if ((chosen[i] & 1u) == 0 || !(x.GetValue(place) >= low)) continue;
        candidates_.add(source, first + place, distances().GetValue(place), best);
      }
    }
  }

  // Behind the candidates.
  SPEC_FN LocalTensor<float> maxima() const { return c.factors[4 * kLanes]; }
  SPEC_FN LocalTensor<float> bounds() const { return c.factors[5 * kLanes]; }
  SPEC_FN LocalTensor<float> distances() const { return c.factors[6 * kLanes]; }

  Context<In>& c;
  Rows<In> rows_;
  LeastNumbers<In> least_;
  Candidates<In> candidates_;
  float low_;
};

}  // namespace spec
