#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "request.h"

namespace spec {
namespace {

// A request that is sampled. The rules differ in how many drafts they accept and in the factor
// with which p enters the residual after them.
class SampledRequest {
 public:
  SampledRequest(Request request, const SampleArguments& arguments, int64_t index,
                 Scratch& scratch)
      : request_(request),
        sampling_(arguments.sampling.of(index)),
        accept_uniform_(arguments.accept_uniform + request.first_draft),
        sample_uniform_(arguments.sample_uniform[index]),
        draft_probs_(arguments.draft_probs
                         ? arguments.draft_probs +
                               request.first_draft * arguments.draft_probs_stride
                         : nullptr),
        draft_probs_stride_(arguments.draft_probs_stride),
        scratch_(scratch) {
    // The block ends before the first draft that nobody proposed: neither that one nor any after it
    // can be accepted.
    while (length_ < request.num_drafts && is_proposed(length_)) length_++;
  }

  void verify_by_token_rule();
  void verify_by_block_rule();

 private:
  Distribution read(int position) {
    Distribution p(request_.row(position));
    p.read(sampling_, scratch_);
    return p;
  }
  // For the block rule: appends the row after `position` drafts to `rows` and reads it. Those
  // drafts have the weight `weight`; `least` is least_weights()[position]. Returns false, possibly
  // before the end of the row, if neither these drafts nor more of them can be accepted.
  bool read_on(int position, double weight, double least, std::vector<Distribution>& rows);
  const float* draft_row(int position) const {
    return draft_probs_ ? draft_probs_ + position * draft_probs_stride_ : nullptr;
  }
  // False for a draft of -1, and for one whose own probability is NaN: that does not tell what the
  // draft was drawn from.
  bool is_proposed(int position) const {
    const int32_t token = request_.draft_ids[position];
    return token >= 0 && !(draft_probs_ && std::isnan(draft_row(position)[token]));
  }
  // Of a draft before `length_`.
  double draft_prob(int position) const {
    if (!draft_probs_) return 1.0;
    const float q = draft_row(position)[request_.draft_ids[position]];
    return q > 0 ? q : 0.0;  // never -0, for x / -0 is -inf
  }
  double target_prob(int position, const Distribution& p) const {
    return p.weight(request_.draft_ids[position]) / p.mass();
  }
  void finish(int num_accepted, Distribution& p, double factor);
  int accept_certain_block(std::vector<Distribution>& rows);
  int accept_sampled_block(std::vector<Distribution>& rows, double* factor);
  std::vector<double> least_weights() const;
  double most_residual(int position, double factor, const Distribution& p) const;

  Request request_;
  const Sampling sampling_;
  const double* const accept_uniform_;
  const double sample_uniform_;
  const float* const draft_probs_;
  const int64_t draft_probs_stride_;
  Scratch& scratch_;
  int length_ = 0;  // drafts before the first that nobody proposed
  bool residual_is_measured_ = false;  // of the first rejected draft, with the final factor
};

// Draws the token after the accepted drafts: of the residual where a draft was rejected, of p
// itself otherwise.
void SampledRequest::finish(int num_accepted, Distribution& p, double factor) {
  int token = -1;
  if (num_accepted < length_) {
    const float* q = draft_row(num_accepted);
    if (q && !residual_is_measured_) p.measure_residual(q, factor, scratch_);
    token = q ? p.draw_residual(q, factor, sample_uniform_, scratch_)
              : p.draw(sample_uniform_, request_.draft_ids[num_accepted], scratch_);
    // An empty residual is the work of rounding (docs/block_rule.md, lemma 8): draw from p itself,
    // read again because draw() has changed it.
    if (token < 0) p = read(num_accepted);
  }
  if (token < 0) token = p.draw(sample_uniform_, -1, scratch_);
  request_.finish(num_accepted, token);
}

void SampledRequest::verify_by_token_rule() {
  for (int i = 0;; i++) {
    Distribution p = read(i);
    const bool accepted =
        i < length_ && accept_uniform_[i] * draft_prob(i) < target_prob(i, p);
    if (!accepted) return finish(i, p, 1.0);
  }
}

void SampledRequest::verify_by_block_rule() {
  std::vector<Distribution> rows;
  rows.reserve(length_ + 1);
  double factor = 1.0;
  const int accepted = draft_probs_ ? accept_sampled_block(rows, &factor)
                                    : accept_certain_block(rows);
  finish(accepted, rows[accepted], factor);
}

// The chance to accept a block of fewer than all drafts whose weight is `factor`, if the residual
// after it sums to `residual`.
static double block_chance(double factor, double residual) {
  return residual / (residual + 1.0 - factor);
}

// Returns a bound for each i: only if the first i + 1 drafts have a weight above least[i], they, or
// more drafts, can be accepted (docs/block_rule.md, lemma 4, where it is L with index i + 1).
std::vector<double> SampledRequest::least_weights() const {
  std::vector<double> least(accept_uniform_, accept_uniform_ + length_);
  for (int i = length_ - 2; i >= 0; i--) {
    least[i] = std::min(least[i], draft_prob(i + 1) * least[i + 1]);
  }
  least.push_back(0.0);  // not used: no draft follows the last
  return least;
}

bool SampledRequest::read_on(
    int position, double weight, double least, std::vector<Distribution>& rows) {
  rows.emplace_back(request_.row(position));
  Distribution& p = rows.back();
  if (position == 0 || accept_uniform_[position - 1] < weight) {
    p.read(sampling_, scratch_);  // the token after the block may be drawn from it
    return true;
  }
  // The first `position` drafts are refused (docs/block_rule.md, lemma 1), so the row only matters
  // for what comes after them (lemma 5).
  const double least_prob = least * draft_prob(position) / weight;
  return p.read(sampling_, scratch_, request_.draft_ids[position], least_prob);
}

// One-hot drafts. Their residuals follow from p of the drafts alone (docs/block_rule.md, lemma 7),
// so each row is judged as it is read.
int SampledRequest::accept_certain_block(std::vector<Distribution>& rows) {
  const std::vector<double> least = least_weights();
  int accepted = 0;
  double weight = 1.0;
  for (int i = 0; read_on(i, weight, least[i], rows); i++) {
    if (i == length_) return i;
    const double next = target_prob(i, rows[i]);
    const double rest = weight * (1.0 - next);
    if (i > 0 && accept_uniform_[i - 1] < (weight >= 1.0 ? 1.0 : block_chance(weight, rest))) {
      accepted = i;
    }
    weight *= next;
    if (weight <= least[i]) break;
  }
  return accepted;
}

// A bound of the residual sum(max(factor * p - q, 0)) from p and q of the draft alone, without
// reading a row (docs/block_rule.md, lemma 6).
double SampledRequest::most_residual(int position, double factor, const Distribution& p) const {
  const double draft = target_prob(position, p);
  return factor * (1.0 - draft) + std::max(factor * draft - draft_prob(position), 0.0);
}

// Sampled drafts. Forwards, rows are read as long as their drafts may be accepted. Backwards,
// residuals are summed up to the first position that is accepted (docs/block_rule.md, lemma 3).
int SampledRequest::accept_sampled_block(std::vector<Distribution>& rows, double* factor) {
  const std::vector<double> least = least_weights();
  std::vector<double> weights{1.0};
  for (int i = 0; read_on(i, weights[i], least[i], rows) && i < length_; i++) {
    const double scaled = weights[i] * target_prob(i, rows[i]);
    const double weight = scaled > 0 ? std::min(scaled / draft_prob(i), 1.0) : 0.0;
    if (weight <= least[i]) break;
    weights.push_back(weight);
  }
  for (int i = static_cast<int>(weights.size()) - 1; i > 0; i--) {
    *factor = weights[i];
    // No chance exceeds its weight (docs/block_rule.md, lemma 1).
    if (accept_uniform_[i - 1] >= *factor) continue;
    // The chance is the weight: of all drafts by definition, at 1 by lemma 8.
    if (i == length_ || *factor >= 1.0) return i;
    // The row is not read where the bound refuses clearly, by more than both sums can be rounded.
    const double most = most_residual(i, *factor, rows[i]) + 1e-5;
    if (accept_uniform_[i - 1] >= block_chance(*factor, most)) continue;
    const double rest = rows[i].measure_residual(draft_row(i), *factor, scratch_);
    residual_is_measured_ = accept_uniform_[i - 1] < block_chance(*factor, rest);
    if (residual_is_measured_) return i;
  }
  *factor = 1.0;
  return 0;
}

}  // namespace

void verify_sample(const Logits& logits, const Drafts& drafts, const SampleArguments& arguments,
                   Rule rule, const Outputs& outputs, int64_t begin, int64_t end) {
  const auto scratch = std::make_unique<Scratch>();
  for (int64_t index = begin; index < end; index++) {
    Request request(logits, drafts, outputs, index);
    if (arguments.sampling.temperature[index] == 0) {
      request.verify_greedily(*scratch);
      continue;
    }
    SampledRequest sampled(request, arguments, index, *scratch);
    rule == Rule::kBlock ? sampled.verify_by_block_rule() : sampled.verify_by_token_rule();
  }
}

}  // namespace spec
