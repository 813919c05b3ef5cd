#include "threshold.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>

namespace spec {

// Values that are looked at together: small enough that most chunks of a peaked row are passed over.
constexpr int kChunk = 128;
static_assert(kBlock % kChunk == 0, "a chunk lies in one block");

ThresholdSearch::ThresholdSearch(
    const Row& row, Weighting weighting, double mass, Scratch& scratch)
    : row_(row), weighting_(weighting), mass_(mass), scratch_(scratch) {
  scratch.chunk_max.clear();
  for (int b = 0; b < row.num_blocks(); b++) {
    const float* x = row.block(b, scratch.values);
    const int n = row.block_size(b);
    for (int start = 0; start < n; start += kChunk) {
      scratch.chunk_max.push_back(block_math().max(x + start, std::min(kChunk, n - start)));
    }
  }
}

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
  search(Measure::kCount, top_k, std::max(lowest_with_weight(), weighting_.threshold));
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

// A better lower end for a search: the chunks' maxima are values of the row, so where they alone
// reach the goal, the row does. `low` where they do not.
float ThresholdSearch::lowest_by_maxima(Measure measure, double goal, float low) const {
  std::vector<float>& maxima = scratch_.sorted_maxima;
  maxima.clear();
  for (const float max : scratch_.chunk_max) {
    if (max >= low) maxima.push_back(max);
  }
  const size_t top_k = measure == Measure::kCount ? static_cast<size_t>(goal) : maxima.size();
  if (top_k > maxima.size()) return low;
  std::partial_sort(maxima.begin(), maxima.begin() + top_k, maxima.end(), std::greater<float>());
  if (measure == Measure::kCount) return maxima[top_k - 1];
  double reached = 0;
  for (const float max : maxima) {
    float weight;
    block_math().weigh(&max, 1, weighting_, &weight);
    reached += weight;
    if (reached >= goal) return max;
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

// Holds the values of the bracket, if there are no more than fit; returns how many there are.
int ThresholdSearch::collect(const Bracket& bracket) {
  int num_held = 0;
  each_chunk_from(bracket.low, [&](const float* x, int n) {
    if (num_held > Scratch::kHeld) return;
    for (int i = 0; i < n; i++) {
      if (!(x[i] >= bracket.low && x[i] <= bracket.high)) continue;
      if (num_held < Scratch::kHeld) scratch_.held[num_held] = x[i];
      num_held++;
    }
  });
  return num_held;
}

// Sorts the bracket's values into bins and returns the bin in which `goal` is reached. Its ends
// are values of the row, so nothing is lost to the rounding of bins' edges.
ThresholdSearch::Bracket ThresholdSearch::narrow(Measure measure, double goal, Bracket bracket) {
  std::fill_n(scratch_.bins, Scratch::kBins, Scratch::Bin{0.0, INFINITY, -INFINITY});
  const double width = double{bracket.high} - bracket.low;
  each_chunk_from(bracket.low, [&](const float* x, int n) {
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
