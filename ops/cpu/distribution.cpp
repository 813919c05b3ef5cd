#include "distribution.h"

#include <algorithm>
#include <cmath>

#include "noisy_search.h"
#include "threshold.h"

namespace spec {

// As powers of two. A block whose largest logit weighs 2^-60 of what the row's maximum weighs adds
// nothing to a sum of floats. A logit that weighs 2^60 times the reference still fits a float.
constexpr float kNegligible = -60.0f;

int argmax(const Row& row, float* buffer) {
  float best = -INFINITY;
  int best_block = -1;
  for (int b = 0; b < row.num_blocks(); b++) {
    const float max = block_math().max(row.block(b, buffer), row.block_size(b));
    if (max > best) {
      best = max;
      best_block = b;
    }
  }
  if (best_block < 0) return 0;
  const float* x = row.block(best_block, buffer);
  return best_block * kBlock + block_math().find(x, row.block_size(best_block), best);
}

static double total(const std::vector<float>& masses) {
  double sum = 0;
  for (const float mass : masses) sum += mass;
  return sum;
}

bool Distribution::read(
    const Sampling& sampling, Scratch& scratch, int token, double least) {
  // Filters make the probabilities of what they keep larger than the row alone says.
  if (sampling.has_filters()) token = -1;
  // At a temperature so low that the scale overflows, it is the largest float and only the maximum
  // keeps a weight; infinity would make NaN of 0 * inf.
  const float scale = to_float(M_LOG2E / sampling.temperature);
  const float first = block_math().max(row_.block(0, scratch.values), row_.block_size(0));
  Outcome outcome = read_blocks(first, scale, scratch, token, least);
  if (outcome == Outcome::kWrongReference) {
    float max = row_max(scratch.values);
    if (std::isinf(max)) max = row_.repair(max);
    outcome = read_blocks(max, scale, scratch, token, least);
  }
  if (outcome == Outcome::kGivenUp) return false;
  // Blocks that weigh next to nothing are set to 0: read beside a reference below the maximum, they
  // may show tokens that have no weight at all beside the maximum.
  for (size_t b = 0; b < block_mass_.size(); b++) {
    if ((block_max_[b] - max_) * scale < kNegligible) block_mass_[b] = 0;
  }
  mass_ = total(block_mass_);
  if (!sampling.has_filters()) return true;
  ThresholdSearch search(row_, weighting_, max_, mass_, scratch);
  weighting_.threshold = search.find(sampling);
  if (weighting_.threshold == -INFINITY) return true;
  mass_ = search.mass();
  block_mass_is_kept_ = false;
  return true;
}

Distribution::Outcome Distribution::read_blocks(
    float reference, float scale, Scratch& scratch, int token, double least) {
  const BlockMath& math = block_math();
  if (std::isinf(reference)) return Outcome::kWrongReference;
  weighting_ = math.weighting(reference, scale);
  // Above this mass the token is too unlikely (docs/block_rule.md, lemma 5). With room for the
  // rounding of weights and sums, so that reading stops only where the answer is clear.
  const double most = token >= 0 ? weight(token) / least * (1 + 1e-5) : INFINITY;
  double mass = 0;
  const int num_blocks = row_.num_blocks();
  block_max_.resize(num_blocks);
  block_mass_.resize(num_blocks);
  scratch.chunk_max.resize(row_.num_chunks());
  max_ = -INFINITY;
  for (int b = 0; b < num_blocks; b++) {
    const float* x = row_.block(b, scratch.values);
    const int n = row_.block_size(b);
    float* const chunk_max = &scratch.chunk_max[b * (kBlock / kChunk)];
    block_mass_[b] = math.read(x, n, weighting_, chunk_max);
    block_max_[b] = math.max(chunk_max, (n - 1) / kChunk + 1);
    max_ = std::max(max_, block_max_[b]);
    if (!(weighting_.power(block_max_[b]) < -kNegligible)) return Outcome::kWrongReference;
    mass += block_mass_[b];
    if (mass > most) return Outcome::kGivenUp;
  }
  return Outcome::kRead;
}

float Distribution::row_max(float* buffer) const {
  float max = -INFINITY;
  for (int b = 0; b < row_.num_blocks(); b++) {
    max = std::max(max, block_math().max(row_.block(b, buffer), row_.block_size(b)));
  }
  return max;
}

float Distribution::weight(int token) const {
  const float x = row_.at(token);
  float weight;
  block_math().weigh(&x, 1, weighting_, &weight);
  return weight;
}

void Distribution::measure_kept(float* buffer) {
  for (int b = 0; b < row_.num_blocks(); b++) {
    const bool any = block_max_[b] >= weighting_.threshold;
    block_mass_[b] =
        any ? block_math().sum(row_.block(b, buffer), row_.block_size(b), weighting_) : 0.0f;
  }
  block_mass_is_kept_ = true;
}

// The first token whose cumulative weight exceeds `goal`, or the last with any.
static int invert(const float* weights, int n, double reached, double goal) {
  int last = 0;
  for (int i = 0; i < n; i++) {
    if (weights[i] <= 0) continue;
    last = i;
    reached += weights[i];
    if (reached > goal) break;
  }
  return last;
}

// The block in which the cumulative mass exceeds `goal`, or the last with any; -1 if none has.
static int find_block(const std::vector<float>& masses, double goal, double* reached) {
  int found = -1;
  double sum = 0;
  for (size_t b = 0; b < masses.size(); b++) {
    if (masses[b] <= 0) continue;
    found = static_cast<int>(b);
    *reached = sum;
    sum += masses[b];
    if (sum > goal) break;
  }
  return found;
}

int Distribution::draw(double uniform, int without, Scratch& scratch) {
  if (!block_mass_is_kept_) measure_kept(scratch.values);
  const auto weigh = [&](int b) {
    const float* x = row_.block(b, scratch.values);
    block_math().weigh(x, row_.block_size(b), weighting_, scratch.weights);
    if (without >= 0 && without / kBlock == b) scratch.weights[without % kBlock] = 0;
  };
  if (without >= 0) {
    // Summed anew without the token: subtracting it would leave its rounding error behind, which
    // may be larger than the rest of the block.
    const int b = without / kBlock;
    weigh(b);
    double mass = 0;
    for (int i = 0; i < row_.block_size(b); i++) mass += scratch.weights[i];
    block_mass_[b] = static_cast<float>(mass);
  }
  const double goal = uniform * total(block_mass_);
  double reached = 0;
  const int b = find_block(block_mass_, goal, &reached);
  if (b < 0) return -1;
  weigh(b);
  return b * kBlock + invert(scratch.weights, row_.block_size(b), reached, goal);
}

void Distribution::read_maxima(Scratch& scratch) {
  scratch.chunk_max.resize(row_.num_chunks());
  const auto read = [&] {
    float* chunk_max = scratch.chunk_max.data();
    max_ = -INFINITY;
    for (int b = 0; b < row_.num_blocks(); b++, chunk_max += kBlock / kChunk) {
      const int n = row_.block_size(b);
      block_math().maxima(row_.block(b, scratch.values), n, chunk_max);
      max_ = std::max(max_, block_math().max(chunk_max, (n - 1) / kChunk + 1));
    }
  };
  read();
  if (!std::isinf(max_)) return;
  row_.repair(max_);
  read();
}

int Distribution::sample(
    const Sampling& sampling, const Noise& noise, int guess, Scratch& scratch) {
  weighting_.threshold = -INFINITY;
  if (sampling.has_filters()) {
    read(sampling, scratch);
  } else {
    read_maxima(scratch);  // no filter asks what probabilities sum to
  }
  NoisySearch search(row_, max_, weighting_.threshold, sampling.temperature, noise, scratch);
  return search.find(guess);
}

float Distribution::residual_block(
    int block, const float* q, double factor, Scratch& scratch) const {
  const float* x = row_.block(block, scratch.values);
  return block_math().residual(
      x, q + block * kBlock, row_.block_size(block), weighting_,
      static_cast<float>(factor / mass_), scratch.weights);
}

double Distribution::measure_residual(
    const float* q, double factor, Scratch& scratch) const {
  scratch.block_sums.resize(row_.num_blocks());
  for (int b = 0; b < row_.num_blocks(); b++) {
    const bool any = block_max_[b] >= weighting_.threshold;
    scratch.block_sums[b] = any ? residual_block(b, q, factor, scratch) : 0.0f;
  }
  return total(scratch.block_sums);
}

int Distribution::draw_residual(
    const float* q, double factor, double uniform, Scratch& scratch) const {
  const double goal = uniform * total(scratch.block_sums);
  double reached = 0;
  const int b = find_block(scratch.block_sums, goal, &reached);
  if (b < 0) return -1;
  residual_block(b, q, factor, scratch);
  return b * kBlock + invert(scratch.weights, row_.block_size(b), reached, goal);
}

}  // namespace spec
