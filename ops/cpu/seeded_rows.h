// Samples the rows of a request with noise of seed and position; greedily, it takes their argmax.
#pragma once

#include "verify.h"

namespace spec {

class SeededRows {
 public:
  SeededRows(const SeededArguments& arguments, int64_t request, Scratch& scratch)
      : sampling_(arguments.sampling.of(request)),
        seed_(arguments.seeds[request]),
        position_(arguments.positions[request]),
        scratch_(scratch) {}

  // The token of a row `depth` tokens after the request's first. `guess` may well be it, or -1.
  int token(const Row& row, int depth, int guess) {
    if (sampling_.temperature == 0) return argmax(row, scratch_.values);
    return Distribution(row).sample(sampling_, Noise(seed_, position_ + depth), guess, scratch_);
  }

 private:
  const Sampling sampling_;
  const int64_t seed_, position_;
  Scratch& scratch_;
};

}  // namespace spec
