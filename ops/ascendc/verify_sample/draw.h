// The last token: the first, in the vocabulary's order, whose cumulative weight exceeds u times the
// sum of the weights.
#pragma once
#include "masses.h"

namespace spec {

template <typename In>
class Draw {
 public:
  SPEC_FN explicit Draw(Context<In>& context) : c(context), masses_(context), weigh_(context) {}

  SPEC_FN int32_t draw(const Request& request, uint32_t position, const Row& row, Job job) {
    float total = masses_.collect(request, position, row, job);
    if (!(total > 0.0f) && job.source == Source::kResidual) {
      // An empty residual is the work of rounding (docs/block_rule.md, lemma 8): draw from p
      // itself.
      job.source = Source::kTarget;
      total = masses_.weigh_all(row, job);
    }
    float goal = cut_uniform(c.sample_uniform.GetValue(request.index)) * total;
    const uint32_t tile = choose(c.values, c.num_tiles, goal);
    return token_in(row, tile, job, goal);
  }

 private:
  // The place at which the running sum passes the goal, which is left relative to that place. If
  // rounding lets none pass it, the last place that has a weight.
  SPEC_FN uint32_t choose(const LocalTensor<float>& weights, uint32_t n, float& goal) const {
    Sum sum;
    uint32_t last = 0;
    float before_last = 0.0f;
    for (uint32_t i = 0; i < n; ++i) {
      const float weight = weights.GetValue(i);
      if (!(weight > 0.0f)) continue;
      last = i;
      before_last = sum.total;
      sum.add(weight);
      if (sum.total > goal) break;
    }
    goal -= before_last;
    return last;
  }

  SPEC_FN int32_t token_in(const Row& row, uint32_t tile, const Job& job, float goal) {
    const uint32_t n = round_up(c.tiles.length(tile), kLanes), chunks = n / kLanes;
    c.tiles.fetch(row.index, tile);
    weigh_.weigh(c.tiles.take(tile), row, tile, job);
    c.tiles.release();
    AscendC::WholeReduceSum<float>(c.cells, c.weights, static_cast<int32_t>(kLanes),
                                   static_cast<int32_t>(chunks), 1, 1, 8);
    begin_scalar();
    const uint32_t chunk = choose(c.cells, chunks, goal);
    const uint32_t lane = choose(c.weights[chunk * kLanes], kLanes, goal);
    end_scalar();
    return static_cast<int32_t>(c.tiles.first_column(tile) + chunk * kLanes + lane);
  }

  Context<In>& c;
  Masses<In> masses_;
  Weigh<In> weigh_;
};

}  // namespace spec
