// Samples tiles of a row: the token whose noise, divided by its weight, is least.
//
// A group of tokens is looked into only if its likeliest token could win with the group's least
// number, and a token's own number is made only if it could. There are few: the scalar unit makes
// them, the vector unit the least numbers.
#pragma once
#include "../verify_sample/rows.h"
#include "candidates.h"

namespace spec {

// A tile's record of a sample: its three fields, and what survey() notes.
enum SampleLane : uint32_t { kSampleTop, kReached, kSampled, kBound, kBeside };

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
  SPEC_FN void sample(const Target& target, const NoiseSource& source, uint32_t begin,
                      uint32_t end, Sampled& best) {
    go<false>(target, source, begin, end, best);
  }

  // Of each tile only the token that looks most likely to win. Leaves in c.staged, for each tile,
  // what its others cannot exceed, and beside which largest logit.
  SPEC_FN void survey(const Target& target, const NoiseSource& source, uint32_t begin,
                      uint32_t end, Sampled& best) {
    for (uint32_t tile = begin; tile < end; ++tile) note(tile - begin, -kInfinity, -kInfinity);
    go<true>(target, source, begin, end, best);
  }

  // A tile that was surveyed.
  SPEC_FN void sample_again(const Target& target, const NoiseSource& source, uint32_t tile,
                            Sampled& best) {
    low_ = low_of(target);
    c.tiles.fetch(target.row, tile);
    least_.restore(target.row, tile * (c.args.tile / kGroup), groups_in(tile, tile + 1));
    judge<false>(target, source, tile, best, 0);
  }

  // Where a survey keeps its least numbers.
  SPEC_FN void keep_in(const GlobalTensor<float>& memory) { least_.keep_in(memory); }

 private:
  struct Bounds {
    float most;          // of all groups
    uint32_t likeliest;  // the group that has it
    float reference, low;
  };

  template <bool survey>
  SPEC_FN void go(const Target& target, const NoiseSource& source, uint32_t begin, uint32_t end,
                  Sampled& best) {
    const uint32_t groups = c.args.tile / kGroup, span = LeastNumbers<In>::kSpan / groups;
    low_ = low_of(target);
    uint32_t tile = next(target, best, begin, end), prepared = tile;
    if (tile < end) c.tiles.fetch(target.row, tile);
    while (tile < end) {
      if (tile >= prepared) {
        prepared = least(end, tile + span);
        const uint32_t count = groups_in(tile, prepared);
        least_.prepare(source, tile * groups, count);
        if constexpr (survey) least_.keep(target.row, count);
      }
      const uint32_t following = next(target, best, tile + 1, end);
      if (following < end) c.tiles.fetch(target.row, following);
      judge<survey>(target, source, tile, best, tile - begin);
      tile = following;
    }
  }

  // The tile that was fetched first.
  template <bool survey>
  SPEC_FN void judge(const Target& target, const NoiseSource& source, uint32_t tile,
                     Sampled& best, uint32_t index) {
    const LocalTensor<float> x = c.tiles.take(tile);
    Bounds bounds;
    if (look(x, target.beta, tile, best, bounds)) {
      judge_likeliest(x, target.beta, source, tile, bounds, best);
      if constexpr (survey) {
        note(index, bounds.most, best.top);
      } else {
        judge_others(x, target.beta, source, tile, bounds, best);
      }
    }
    c.tiles.release();
  }

  static SPEC_FN float low_of(const Target& target) {
    return target.threshold > -kLargest ? target.threshold : -kLargest;
  }

  SPEC_FN void note(uint32_t index, float most, float top) {
    c.staged.SetValue(index * kRecord + kBound, most);
    c.staged.SetValue(index * kRecord + kBeside, top);
  }

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

  // Returns whether any token of a tile can win.
  SPEC_FN bool look(const LocalTensor<float>& x, float beta, uint32_t tile, Sampled& best,
                    Bounds& bounds) {
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
    if (top == -kInfinity || (best.top == kInfinity && top < kInfinity)) return false;
    best.raise(top, beta);
    bounds.reference = best.top;
    bounds.low = low_;
    if (top == kInfinity) {
      // Infinite logits share all of the weight.
      to_zero(x, groups * kGroup);
      top_of_groups(x, groups);
      bounds.reference = bounds.low = 0.0f;
    }
    find_bounds(bounds, beta, c.tiles.first_column(tile) / kGroup, groups);
    AscendC::ReduceMax(c.cells, all_bounds(), c.sums, static_cast<int32_t>(kLanes), true);
    begin_scalar();
    bounds.most = c.cells.GetValue(0);
    bounds.likeliest = bits_of(c.cells.GetValue(1));
    end_scalar();
    return bounds.most >= best.goal() && bounds.most > -kInfinity;
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

  // The largest logit of the group with the highest bound: then few others are left.
  SPEC_FN void judge_likeliest(const LocalTensor<float>& x, float beta, const NoiseSource& source,
                               uint32_t tile, const Bounds& bounds, Sampled& best) {
    const uint32_t group = bounds.likeliest * kGroup;
    AscendC::ReduceMax(c.cells, x[group], c.sums, static_cast<int32_t>(kGroup), true);
    begin_scalar();
    const uint32_t token = c.tiles.first_column(tile) + group + bits_of(c.cells.GetValue(1));
    candidates_.add(source, token, (c.cells.GetValue(0) - bounds.reference) * beta, best);
    candidates_.judge(best);
    end_scalar();
  }

  SPEC_FN void judge_others(const LocalTensor<float>& x, float beta, const NoiseSource& source,
                            uint32_t tile, const Bounds& bounds, Sampled& best) {
    const uint32_t first = c.tiles.first_column(tile);
    AscendC::CompareScalar(c.mask, all_bounds(), best.goal(), AscendC::CMPMODE::GE, kLanes);
    begin_scalar();
    const LocalTensor<uint32_t> bits = c.mask.template ReinterpretCast<uint32_t>();
    uint64_t chosen = static_cast<uint64_t>(bits.GetValue(1)) << 32 | bits.GetValue(0);
    for (uint32_t at = 0; chosen != 0; at += kGroup, chosen >>= 1) {
      if ((chosen & 1u) != 0) look_into(x[at], beta, source, first + at, bounds, best);
    }
    candidates_.judge(best);
    end_scalar();
  }

  // What no token of a group can exceed: its largest logit with its least number. -inf for groups
  // of which the filters keep nothing.
  SPEC_FN void find_bounds(const Bounds& bounds, float beta, uint32_t first_group,
                           uint32_t groups) {
    constexpr auto lanes = static_cast<int32_t>(kLanes);
    const LocalTensor<float> all = all_bounds();
    AscendC::CompareScalar(c.mask, maxima(), bounds.low, AscendC::CMPMODE::GE, kLanes);
    AscendC::Adds(all, maxima(), -bounds.reference, lanes);
    vector_order();
    AscendC::Muls(all, all, beta, lanes);
    vector_order();
    AscendC::Add(all, all, least_.gains(first_group), static_cast<int32_t>(groups));
    vector_order();
    AscendC::Select(all, c.mask, all, -kInfinity, AscendC::SELMODE::VSEL_TENSOR_SCALAR_MODE,
                    kLanes);
    vector_order();
  }

  // A group's tokens that could win. The scalar unit has its turn before and after.
  SPEC_FN void look_into(const LocalTensor<float>& x, float beta, const NoiseSource& source,
                         uint32_t first, const Bounds& bounds, Sampled& best) {
    constexpr auto n = static_cast<int32_t>(kGroup);
    const float needed = best.goal() - least_.gain(first / kGroup);
    end_scalar();
    AscendC::Adds(distances(), x, -bounds.reference, n);
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
        if ((chosen[i] & 1u) == 0 || !(x.GetValue(place) >= bounds.low)) continue;
        candidates_.add(source, first + place, distances().GetValue(place), best);
      }
    }
  }

  // Behind the candidates.
  SPEC_FN LocalTensor<float> maxima() const { return c.factors[4 * kLanes]; }
  SPEC_FN LocalTensor<float> all_bounds() const { return c.factors[5 * kLanes]; }
  SPEC_FN LocalTensor<float> distances() const { return c.factors[6 * kLanes]; }

  Context<In>& c;
  Rows<In> rows_;
  LeastNumbers<In> least_;
  Candidates<In> candidates_;
  float low_;
};

}  // namespace spec
