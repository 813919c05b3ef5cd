#include "threshold.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>

namespace spec {

float ThresholdSearch::find(const Sampling& sampling) {
  if (sampling.min_p > 0.0f) keep_min_p(sampling.min_p);
  if (sampling.top_k > 0 && sampling.top_k < row_.vocab()) keep_top_k(sampling.top_k);
  if (sampling.top_p < 1.0f) keep_top_p(sampling.top_p);
  return weighting_.threshold;
}

void ThresholdSearch::keep_min_p(float min_p) {
  weighting_.threshold =
      static_cast<float>(weighting_.max + std::log2(double{min_p}) / weighting_.scale);
  mass_ = mass_above(weighting_.threshold);
}

void ThresholdSearch::keep_top_k(int top_k) {
  float low = std::max(lowest_with_weight(), weighting_.threshold);
  // Each block has its maximum, so the k-th largest maximum cannot exceed the k-th largest value.
  if (static_cast<size_t>(top_k) <= block_max_.size()) {
    std::vector<float> maxima = block_max_;
    const auto kth = maxima.begin() + (top_k - 1);
    std::nth_element(maxima.begin(), kth, maxima.end(), std::greater<float>());
    low = std::max(low, *kth);
  }
  search(Measure::kCount, top_k, low);
}

void ThresholdSearch::keep_top_p(float top_p) {
  // All tokens below `low` together have no more than what top-p drops: vocab of them at most,
  // each below 2^((low - max) * scale).
  const double dropped = (1.0 - top_p) * mass_;
  const double powers = std::log2(row_.vocab() / dropped) + 0.01;
  const double low = weighting_.max - powers / weighting_.scale;
  search(Measure::kMass, top_p * mass_,
         std::max({static_cast<float>(low), lowest_with_weight(), weighting_.threshold}));
}

// Below this a token's weight is 0 in float32, so that nothing changes if it is kept.
float ThresholdSearch::lowest_with_weight() const {
  return std::max(weighting_.max - 126.0f / weighting_.scale, -FLT_MAX);
}

template <class Visit>
void ThresholdSearch::each_block_from(float low, Visit visit) const {
  for (int b = 0; b < row_.num_blocks(); b++) {
    if (block_max_[b] >= low) visit(row_.block(b, scratch_.values), row_.block_size(b));
  }
}

double ThresholdSearch::mass_above(float low) const {
  double mass = 0;
  const Weighting kept{weighting_.max, weighting_.scale, low};
  each_block_from(low, [&](const float* x, int n) { mass += block_math().sum(x, n, kept); });
  return mass;
}

void ThresholdSearch::search(Measure measure, double goal, float low) {
  Bracket bracket{low, weighting_.max, 0.0};
  int num_held = collect(bracket);
  while (num_held > Scratch::kHeld && bracket.low < bracket.high) {
    bracket = narrow(measure, goal, bracket);
    num_held = collect(bracket);
  }
  settle(measure, goal, bracket, num_held);
}

// Holds the values of the bracket, if there are no more than fit; returns how many there are.
int ThresholdSearch::collect(const Bracket& bracket) {
  constexpr int kStep = 128;
  int num_held = 0;
  each_block_from(bracket.low, [&](const float* x, int n) {
    for (int start = 0; start < n && num_held <= Scratch::kHeld; start += kStep) {
      const int step = std::min(kStep, n - start);
      if (block_math().count(x + start, step, bracket.low) == 0) continue;
      for (int i = start; i < start + step; i++) {
        if (!(x[i] >= bracket.low && x[i] <= bracket.high)) continue;
        if (num_held < Scratch::kHeld) scratch_.held[num_held] = x[i];
        num_held++;
      }
    }
  });
  return num_held;
}

// Sorts the bracket's values into bins and returns the bin in which `goal` is reached. Its ends
// are values of the row, so nothing is lost to the rounding of bins' edges.
ThresholdSearch::Bracket ThresholdSearch::narrow(Measure measure, double goal, Bracket bracket) {
  std::fill_n(scratch_.bins, Scratch::kBins, Scratch::Bin{0.0, INFINITY, -INFINITY});
  const double width = double{bracket.high} - bracket.low;
  each_block_from(bracket.low, [&](const float* x, int n) {
    if (measure == Measure::kMass) block_math().weigh(x, n, weighting_, scratch_.weights);
    for (int i = 0; i < n; i++) {
      if (!(x[i] >= bracket.low && x[i] <= bracket.high)) continue;
      const double place = (double{x[i]} - bracket.low) / width;
      const int index = std::min(static_cast<int>(place * Scratch::kBins), Scratch::kBins - 1);
      Scratch::Bin& bin = scratch_.bins[index];
      bin.measure += measure == Measure::kMass ? scratch_.weights[i] : 1.0f;
      bin.lowest = std::min(bin.lowest, x[i]);
      bin.highest = std::max(bin.highest, x[i]);
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
