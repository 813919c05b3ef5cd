#include "threshold.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>

namespace spec {

ThresholdSearch::ThresholdSearch(
    const Row& row, Weighting weighting, double mass, Scratch& scratch)
    : row_(row), weighting_(weighting), mass_(mass), scratch_(scratch) {}

float ThresholdSearch::find(const Sampling& sampling) {
  if (sampling.min_p > 0.0f) keep_min_p(sampling.min_p);
  if (sampling.top_k > 0 && sampling.top_k < row_.vocab()) keep_top_k(sampling.top_k);
  if (sampling.top_p < 1.0f) keep_top_p(sampling.top_p);
  return weighting_.threshold;
}

void ThresholdSearch::keep_min_p(float min_p) {
  const double least = weighting_.max + std::log2(double{min_p}) / weighting_.scale;
  float& threshold = weighting_.threshold;
  threshold = to_float(least);
  // Rounded down it would keep a logit just below: far from 0 they lie that close.
  if (threshold < least) threshold = std::nextafter(threshold, INFINITY);
  mass_ = mass_above(threshold);
}

void ThresholdSearch::keep_top_k(int top_k) {
  search(Measure::kCount, top_k, std::max(lowest_with_weight(), weighting_.threshold));
}

void ThresholdSearch::keep_top_p(float top_p) {
  // All tokens below `low` together have no more than what top-p drops: vocab of them at most,
  // each below 2^((low - max) * scale).
  const double dropped = (1.0 - top_p) * mass_;
  const double powers = std::log2(row_.vocab() / dropped) + 0.01;
  const double low = weighting_.max - powers / weighting_.scale;
  search(Measure::kMass, top_p * mass_,
         std::max({to_float(low), lowest_with_weight(), weighting_.threshold}));
}

double ThresholdSearch::weight(float value) const {
  float weight;
  block_math().weigh(&value, 1, weighting_, &weight);
  return weight;
}

// Below this a token's weight is 0 in float32, so that nothing changes if it is kept.
float ThresholdSearch::lowest_with_weight() const {
  return std::max(weighting_.max - 126.0f / weighting_.scale, -FLT_MAX);
}

// A better lower end for a search: the chunks' maxima are values of the row, so where they alone
// reach the goal, the row does. `low` where they do not.
float ThresholdSearch::lowest_by_maxima(Measure measure, double goal, float low) const {
  float* const maxima = scratch_.weights;  // as many as fit: some are as valid as all
  float* end = maxima;
  for (const float max : scratch_.chunk_max) {
    if (max >= low && end < maxima + kBlock) *end++ = max;
  }
  if (measure == Measure::kCount) {
    if (goal > end - maxima) return low;
    float* const kth = maxima + static_cast<int64_t>(goal) - 1;
    std::nth_element(maxima, kth, end, std::greater<float>());
    return *kth;
  }
  if (block_math().sum(maxima, static_cast<int>(end - maxima), weighting_) < goal) return low;
  std::make_heap(maxima, end);
  double reached = 0;
  for (; end != maxima; end--) {
    const float max = *maxima;
    reached += weight(max);
    if (reached >= goal) return max;
    std::pop_heap(maxima, end);
  }
  return low;
}

template <class Visit>
void ThresholdSearch::each_chunk_from(float low, Visit visit) const {
  const float* chunk_max = scratch_.chunk_max.data();
  for (int b = 0; b < row_.num_blocks(); b++) {
    const int n = row_.block_size(b);
    const float* x = nullptr;
    for (int start = 0; start < n; start += kChunk) {
      if (!(*chunk_max++ >= low)) continue;
      if (!x) x = row_.block(b, scratch_.values);
      visit(x + start, std::min(kChunk, n - start));
    }
  }
}

double ThresholdSearch::mass_above(float low) const {
  double mass = 0;
  const Weighting kept{weighting_.max, weighting_.scale, low};
  each_chunk_from(low, [&](const float* x, int n) { mass += block_math().sum(x, n, kept); });
  return mass;
}

void ThresholdSearch::search(Measure measure, double goal, float low) {
  Bracket bracket{lowest_by_maxima(measure, goal, low), weighting_.max, 0.0};
  int num_held = collect(bracket);
  while (num_held > Scratch::kHeld && bracket.low < bracket.high) {
    bracket = narrow(measure, goal, bracket);
    num_held = collect(bracket);
  }
  settle(measure, goal, bracket, num_held);
}

// Holds the values of the bracket; returns how many there are, or more than kHeld if these do not
// fit.
int ThresholdSearch::collect(const Bracket& bracket) {
  int num_held = 0;
  each_chunk_from(bracket.low, [&](const float* x, int n) {
    if (num_held > Scratch::kHeld) return;
    float* end = scratch_.held + num_held;
    num_held += block_math().collect(x, n, bracket.low, bracket.high, end);
  });
  return num_held;
}

// Sorts the bracket's values into bins and returns the bin in which `goal` is reached. Its ends
// are values of the row, so nothing is lost to the rounding of bins' edges.
ThresholdSearch::Bracket ThresholdSearch::narrow(Measure measure, double goal, Bracket bracket) {
  std::fill_n(scratch_.bins, Scratch::kBins, Scratch::Bin{0.0, INFINITY, -INFINITY});
  const double bins_per_unit = Scratch::kBins / (double{bracket.high} - bracket.low);
  each_chunk_from(bracket.low, [&](const float* x, int n) {
    float* values = scratch_.held;
    const int count = block_math().collect(x, n, bracket.low, bracket.high, values);
    if (measure == Measure::kMass) block_math().weigh(values, count, weighting_, scratch_.weights);
    for (int i = 0; i < count; i++) {
      const int place = static_cast<int>((double{values[i]} - bracket.low) * bins_per_unit);
      Scratch::Bin& bin = scratch_.bins[std::min(place, Scratch::kBins - 1)];
      bin.measure += measure == Measure::kMass ? scratch_.weights[i] : 1.0f;
      bin.lowest = std::min(bin.lowest, values[i]);
      bin.highest = std::max(bin.highest, values[i]);
    }
  });
  Bracket found = bracket;
  double above = bracket.above;
  for (int index = Scratch::kBins - 1; index >= 0; index--) {
    const Scratch::Bin& bin = scratch_.bins[index];
    if (bin.lowest > bin.highest) continue;  // empty
    found = {bin.lowest, bin.highest, above};
    above += bin.measure;
    if (above >= goal) break;
  }
  return found;
}

static double sum(const float* weights, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += weights[i];
  return sum;
}

// Goes down the values of the bracket, equal ones together, until `goal` is reached.
void ThresholdSearch::settle(
    Measure measure, double goal, const Bracket& bracket, int num_held) {
  float threshold = bracket.low;
  if (num_held <= Scratch::kHeld) {
    float* held = scratch_.held;
    std::sort(held, held + num_held, std::greater<float>());
    static_assert(Scratch::kHeld <= kBlock, "the weights of what is held fit a block");
    block_math().weigh(held, num_held, weighting_, scratch_.weights);
    double reached = bracket.above;
    int i = 0;
    while (i < num_held && reached < goal) {
      threshold = held[i];
      for (; i < num_held && held[i] == threshold; i++) {
        reached += measure == Measure::kMass ? scratch_.weights[i] : 1.0f;
      }
    }
    // Fewer tokens with a weight than top-k asks for: it drops nothing.
    if (reached < goal && measure == Measure::kCount) return;
    if (measure == Measure::kMass || bracket.above == 0) {
      weighting_.threshold = threshold;
      mass_ = measure == Measure::kMass ? reached : sum(scratch_.weights, i);
      return;
    }
  }
  weighting_.threshold = threshold;
  mass_ = mass_above(threshold);
}

}  // namespace spec
