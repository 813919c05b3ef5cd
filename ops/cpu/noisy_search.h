// Finds the token of a row whose noise, divided by its probability, is least.
//
// The noise of most tokens is never drawn. A bound, in floats, says what a chunk can reach with its
// least number and its likeliest token, and so for each token with that number. What may still win
// is drawn and judged in doubles.
#pragma once

#include <cmath>

#include "logits.h"
#include "noise.h"

namespace spec {

struct Scratch;

class NoisySearch {
 public:
  // max: the row's largest logit. low: the least that is kept. The row was read into
  // scratch.chunk_max.
  NoisySearch(const Row& row, float max, float low, float temperature, const Noise& noise,
              Scratch& scratch);

  // guess: a token that may win, such as a draft: the less is left to search if it does. -1: none.
  int find(int guess);

 private:
  void try_guess(int token);
  // Tries the token that has the least number of its chunk.
  void try_least(int chunk);
  // Holds the other tokens of a chunk that may win, until their noise is drawn together.
  void hold_others(int chunk);
  void try_held();
  void try_token(int token, float logit, double number);
  // Chunks that may still win; returns how many there are.
  int choose_chunks();

  int place_of_least(int chunk) const;
  double least(int chunk) const;
  // No logit of the chunk below this can win.
  float least_logit(int chunk) const;

  const Row& row_;
  const float max_, low_;
  const double scale_;
  const float rounded_scale_;
  const double inverse_scale_;  // rounded up
  const Noise& noise_;
  Scratch& scratch_;
  // In logarithms, where the row's largest logit is 0: the most log p - log(noise), and who has it.
  double best_ = -INFINITY;
  int token_ = 0;
};

}  // namespace spec
