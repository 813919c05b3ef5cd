// min-p, top-k and top-p as one threshold on the logits, without sorting the vocabulary.
//
// Each filter keeps the argmax tokens and all that tie with the last of them, so each amounts
// to a lowest logit. The search for it looks at the values in a shrinking bracket: a histogram
// while there are many, a sort when they fit a small buffer. It always ends at a logit of the row.
#pragma once

#include <vector>

#include "distribution.h"

namespace spec {

class ThresholdSearch {
 public:
  // max, mass: of the whole row, which was read into scratch.chunk_max.
  ThresholdSearch(
      const Row& row, Weighting weighting, float max, double mass, Scratch& scratch);

  // The lowest logit that is kept; -inf if no filter drops anything that has a weight.
  float find(const Sampling& sampling);
  // Mass of what is kept.
  double mass() const { return mass_; }

 private:
  enum class Measure { kCount, kMass };
  // Values that may be the threshold: all in [low, high], with `above` the measure of those beyond.
  struct Bracket {
    float low, high;
    double above;
  };

  void keep_min_p(float min_p);
  void keep_top_k(int top_k);
  void keep_top_p(float top_p);

  // The largest value at or above `low` with at least `goal` at or above it.
  void search(Measure measure, double goal, float low);
  Bracket halve(Measure measure, double goal, Bracket bracket) const;
  Bracket narrow(Measure measure, double goal, Bracket bracket);
  int collect(const Bracket& bracket);
  void settle(Measure measure, double goal, const Bracket& bracket, int num_held);
  void descend(Measure measure, double goal, double above, int num_held);
  // The logit that weighs 2^power.
  double logit_of_power(double power) const;
  float lowest_with_weight() const;
  float lowest_by_maxima(Measure measure, double goal, float low) const;
  // Measure of the values at or above `low`: of these n, and of the row.
  double measure_of(Measure measure, const float* x, int n, float low) const;
  double measure_from(Measure measure, float low) const;

  // visit(x, n) for neighbouring chunks, of `longest` values in all at most, that have a value at
  // or above `low` each.
  template <class Visit>
  void each_run_from(float low, int longest, Visit visit) const;

  const Row& row_;
  Weighting weighting_;
  float max_;
  double mass_;
  // How many tokens are kept, if they and their weights lie in the scratch, the argmax first.
  int num_sorted_ = 0;
  Scratch& scratch_;
};

}  // namespace spec
