// The target's distribution of one row: read once, filtered, sampled.
#pragma once

#include <algorithm>
#include <cfloat>
#include <vector>

#include "logits.h"
#include "noise.h"

namespace spec {

// The nearest finite float: a conversion out of range would be undefined.
inline float to_float(double value) {
  return static_cast<float>(std::clamp(value, -double{FLT_MAX}, double{FLT_MAX}));
}

// What one request asks of its distribution.
struct Sampling {
  float temperature;
  int top_k;    // <= 0: off
  float top_p;  // 1: off
  float min_p;  // 0: off

  bool has_filters() const { return top_k > 0 || top_p < 1.0f || min_p > 0.0f; }
};

// Memory of one thread: 33 KiB, and 160 bytes for every 1,000 tokens of the vocabulary.
struct Scratch {
  static constexpr int kHeld = 1024;
  static constexpr int kBins = 512;

  float values[kBlock];        // a block that cannot be read in place
  float weights[kBlock];       // of a block
  float held[kHeld + kChunk];  // candidates for a threshold, and room for the chunk they end in
  struct Bin {
    double measure;
    float lowest, highest;
  } bins[kBins];
  std::vector<float> block_sums;  // [num_blocks], of a residual
  std::vector<float> chunk_max;   // [num_chunks], of the row that was read last
  // For sample():
  std::vector<float> bounds;            // [num_chunks], of what a chunk's tokens can reach
  std::vector<ChunkLeast> chunk_least;  // [num_chunks]
  std::vector<int32_t> chosen;          // [num_chunks + 16], chunks that may win
  Candidates candidates;
};

// Index of the largest logit, the lowest of equal ones; 0 if there is none above -inf.
int argmax(const Row& row, float* buffer);

// Holds 4 bytes for every 1,000 tokens of the vocabulary.
class Distribution {
 public:
  explicit Distribution(const Row& row) : row_(row) {}

  // Reads the row once; again, in part, where there are filters.
  void read(const Sampling& sampling, Scratch& scratch) { read(sampling, scratch, -1, 0.0); }
  // The same, but gives up and returns false once what was read shows that the probability of
  // `token` is below `least`; nothing else can be asked of the row then.
  bool read(const Sampling& sampling, Scratch& scratch, int token, double least);

  // Unnormalised probability of one token, and of all of them.
  float weight(int token) const;
  double mass() const { return mass_; }

  // A token by inverting the cumulative distribution; token `without` (or -1) counts for nothing.
  // Returns -1 if there is no mass.
  int draw(double uniform, int without, Scratch& scratch);

  // Reads the row; returns the token whose noise, divided by its probability, is least. `guess` may
  // well be it, and makes the search shorter if so; -1: none. Nothing else can be asked of the row
  // then.
  int sample(const Sampling& sampling, const Noise& noise, int guess, Scratch& scratch);

  // Sum of max(factor * p - q, 0) with p normalised; leaves the sums of its blocks in the scratch.
  double measure_residual(const float* q, double factor, Scratch& scratch) const;
  // A token drawn from what was measured last (-1: no mass).
  int draw_residual(const float* q, double factor, double uniform, Scratch& scratch) const;

 private:
  enum class Outcome { kRead, kGivenUp, kWrongReference };
  // Weighs the row by a logit that may not be its largest, so that once over it is enough; unless
  // there is one so much larger, or infinite, that this does not do.
  Outcome read_blocks(
      float reference, float scale, Scratch& scratch, int token, double least);
  float row_max(float* buffer) const;
  void read_maxima(Scratch& scratch);
  void measure_kept(float* buffer);
  float residual_block(int block, const float* q, double factor, Scratch& scratch) const;

  Row row_;
  Weighting weighting_{};
  float max_ = 0;  // the row's largest logit
  double mass_ = 0;
  bool block_mass_is_kept_ = true;
  std::vector<float> block_max_;   // [num_blocks]
  std::vector<float> block_mass_;  // [num_blocks]
};

}  // namespace spec
