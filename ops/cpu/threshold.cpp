#include "threshold.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>

namespace spec {

ThresholdSearch::ThresholdSearch(
    const Row& row, Weighting weighting, float max, double mass, Scratch& scratch)
    : row_(row), weighting_(weighting), max_(max), mass_(mass), scratch_(scratch) {}

float ThresholdSearch::find(const Sampling& sampling) {
  if (sampling.min_p > 0.0f) keep_min_p(sampling.min_p);
  if (sampling.top_k > 0 && sampling.top_k < row_.vocab()) keep_top_k(sampling.top_k);
  if (sampling.top_p < 1.0f) keep_top_p(sampling.top_p);
  return weighting_.threshold;
}

void ThresholdSearch::keep_min_p(float min_p) {
  const double least = max_ + std::log2(double{min_p}) / weighting_.scale;
  float& threshold = weighting_.threshold;
  threshold = to_float(least);
  // Rounded down, it could keep a logit that lies just below `least`.
  if (threshold < least) threshold = std::nextafter(threshold, INFINITY);
  mass_ = measure_from(Measure::kMass, threshold);
}

void ThresholdSearch::keep_top_k(int top_k) {
  search(Measure::kCount, top_k, std::max(lowest_with_weight(), weighting_.threshold));
}

void ThresholdSearch::keep_top_p(float top_p) {
  if (num_sorted_ > 0) return descend(Measure::kMass, top_p * mass_, 0.0, num_sorted_);
  // All tokens below `low` together have no more than what top-p drops: vocab of them at most,
  // each below the weight of `low`.
  const double dropped = (1.0 - top_p) * mass_;
  const double low = logit_of_power(std::log2(dropped / row_.vocab()) - 0.01);
  search(Measure::kMass, top_p * mass_,
         std::max({to_float(low), lowest_with_weight(), weighting_.threshold}));
}

double ThresholdSearch::logit_of_power(double power) const {
  return weighting_.shift + (power + weighting_.exponent) / weighting_.scale;
}

// Below this a token's weight is 0 in float32, so that nothing changes if it is kept.
float ThresholdSearch::lowest_with_weight() const {
  return to_float(logit_of_power(-126.0));
}

// A better lower end for a search: the chunks' maxima are values of the row, so where they alone
// reach the goal, the row does. `low` where they do not.
float ThresholdSearch::lowest_by_maxima(Measure measure, double goal, float low) const {
  const int steps = measure == Measure::kCount ? 10 : 7;  // weights take longer than counts
  const auto reaches_goal = [&](float threshold) {
    const std::vector<float>& maxima = scratch_.chunk_max;
    const int count = static_cast<int>(maxima.size());
    return measure_of(measure, maxima.data(), count, threshold) >= goal;
  };
  if (!reaches_goal(low)) return low;
  float high = max_;
  for (int step = 0; step < steps; step++) {
    const float middle = low + (high - low) / 2;
    (reaches_goal(middle) ? low : high) = middle;
  }
  return low;
}

template <class Visit>
void ThresholdSearch::each_run_from(float low, int longest, Visit visit) const {
  const float* chunk_max = scratch_.chunk_max.data();
  for (int b = 0; b < row_.num_blocks(); b++, chunk_max += kBlock / kChunk) {
    const int n = row_.block_size(b);
    const float* x = nullptr;
    for (int start = 0; start < n;) {
      int end = start;
      while (end < n && end - start < longest && chunk_max[end / kChunk] >= low) end += kChunk;
      if (end == start) {
        start += kChunk;
        continue;
      }
      if (!x) x = row_.block(b, scratch_.values);
      visit(x + start, std::min(end, n) - start);
      start = end;
    }
  }
}

double ThresholdSearch::measure_of(Measure measure, const float* x, int n, float low) const {
  if (measure == Measure::kCount) return block_math().count(x, n, low);
  Weighting w = weighting_;
  w.threshold = low;
  return block_math().sum(x, n, w);
}

double ThresholdSearch::measure_from(Measure measure, float low) const {
  double sum = 0;
  each_run_from(
      low, kBlock, [&](const float* x, int n) { sum += measure_of(measure, x, n, low); });
  return sum;
}

void ThresholdSearch::search(Measure measure, double goal, float low) {
  Bracket bracket{lowest_by_maxima(measure, goal, low), max_, 0.0};
  int num_held = collect(bracket);
  if (num_held > Scratch::kHeld) {
    bracket = halve(measure, goal, bracket);
    num_held = collect(bracket);
  }
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
  each_run_from(bracket.low, kChunk, [&](const float* x, int n) {
    if (num_held > Scratch::kHeld) return;
    float* end = scratch_.held + num_held;
    num_held += block_math().collect(x, n, bracket.low, bracket.high, end);
  });
  return num_held;
}

// ProbeTimer into the middle of the bracket a few times. A flat row has very many candidates, and
// summing them is far cheaper than sorting them into bins.
ThresholdSearch::Bracket ThresholdSearch::halve(
    Measure measure, double goal, Bracket bracket) const {
  constexpr int kSteps = 8;
  for (int step = 0; step < kSteps; step++) {
    const float middle = bracket.low + (bracket.high - bracket.low) / 2;
    if (!(bracket.low < middle && middle <= bracket.high)) break;
    const double from = measure_from(measure, middle);
    if (from >= goal) {
      bracket.low = middle;
    } else {
      bracket.above = from;
      bracket.high = std::nextafter(middle, -INFINITY);
    }
  }
  return bracket;
}

// Sorts the bracket's values into bins and returns the bin in which `goal` is reached. Its ends
// are values of the row, so nothing is lost to the rounding of bins' edges.
ThresholdSearch::Bracket ThresholdSearch::narrow(Measure measure, double goal, Bracket bracket) {
  std::fill_n(scratch_.bins, Scratch::kBins, Scratch::Bin{0.0, INFINITY, -INFINITY});
  const double bins_per_unit = Scratch::kBins / (double{bracket.high} - bracket.low);
  each_run_from(bracket.low, kChunk, [&](const float* x, int n) {
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

// Ends a search: in the values that are held, or with the one value that the bracket consists of.
void ThresholdSearch::settle(
    Measure measure, double goal, const Bracket& bracket, int num_held) {
  if (num_held <= Scratch::kHeld) {
    float* held = scratch_.held;
    std::sort(held, held + num_held, std::greater<float>());
    static_assert(Scratch::kHeld <= kBlock, "the weights of what is held fit a block");
    block_math().weigh(held, num_held, weighting_, scratch_.weights);
    descend(measure, goal, bracket.above, num_held);
  } else {
    // More than kHeld values are left, all of them equal.
    weighting_.threshold = bracket.low;
    mass_ = measure_from(Measure::kMass, bracket.low);
  }
}

// Goes down the sorted values, equal ones together, until their measure and `above` reach `goal`.
void ThresholdSearch::descend(Measure measure, double goal, double above, int num_held) {
  const float* held = scratch_.held;
  double reached = above;
  double mass = 0;
  int i = 0;
  while (i < num_held && reached < goal) {
    const float value = held[i];
    for (; i < num_held && held[i] == value; i++) {
      mass += scratch_.weights[i];
      reached += measure == Measure::kMass ? scratch_.weights[i] : 1.0;
    }
  }
  // Fewer tokens with a weight than top-k asks for: it drops nothing.
  if (i == 0 || (reached < goal && measure == Measure::kCount)) return;
  weighting_.threshold = held[i - 1];
  if (above == 0) {
    mass_ = mass;
    num_sorted_ = i;
  } else {
    mass_ = measure == Measure::kMass ? reached : measure_from(Measure::kMass, held[i - 1]);
  }
}

}  // namespace spec
