// How many drafts of a request are accepted, and what its last token is drawn from.
#pragma once
#include "masses.h"

namespace spec {

struct Decision {
  uint32_t accepted;
  int32_t token;  // of greedy requests; -1: to be drawn
  Job job;
  // Block rule with the drafts' distributions: up to `open` drafts may be accepted instead. How
  // many depends on residuals that are not known yet.
  uint32_t open;
};

// Makes the rows that a request's core looks at exist: a core that does whole requests scans each
// row when it comes to it.
template <typename In>
class Supply {
 public:
  SPEC_FN explicit Supply(Context<In>& context)
      : c(context), rows_(context), scan_(context), search_(context), masses_(context) {}

  SPEC_FN void start() { scanned_ = 0; }

  SPEC_FN int32_t argmax(const Request& request, uint32_t position) {
    ensure(request, position);
    return rows_.argmax(c.row_of(request, position));
  }
  SPEC_FN Row row(const Request& request, uint32_t position) {
    ensure(request, position);
    return masses_.load_row(request, position);
  }

  Context<In>& c;

 private:
  SPEC_FN void ensure(const Request& request, uint32_t position) {
    if (!c.has(kByRequest) || position < scanned_) return;
    scan_.scan(request, position, 0, c.num_tiles);
    full_order();
    if (c.has(kFilters) && !request.greedy) {
      rows_.store(search_.filtered(request, position));
      full_order();
    }
    scanned_ = position + 1;
  }

  Rows<In> rows_;
  Scan<In> scan_;
  Search<In> search_;
  Masses<In> masses_;
  uint32_t scanned_ = 0;
};

template <typename In>
class Decide {
 public:
  SPEC_FN explicit Decide(Supply<In>& supply) : c(supply.c), supply_(supply) {}

  SPEC_FN Decision decide(const Request& request) {
    supply_.start();
    if (request.greedy) return greedy(request);
    return c.has(kBlockRule) ? by_block(request) : by_token(request);
  }

  SPEC_FN float uniform(const Request& request, uint32_t position) const {
    return cut_uniform(c.accept_uniform.GetValue(request.first_draft + position));
  }
  // The chance to accept the first i drafts, not all, given their weight and the sum of the
  // residual after them. At a weight of 1 it is 1 (docs/block_rule.md, lemma 8).
  static SPEC_FN float chance(float weight, float remains) {
    return weight >= 1.0f ? 1.0f : remains / (remains + 1.0f - weight);
  }

 private:
  static SPEC_FN Decision after(uint32_t accepted, Source source, float weight) {
    return Decision{accepted, -1, Job{source, weight}, 0};
  }

  SPEC_FN Decision greedy(const Request& request) {
    for (uint32_t position = 0;; ++position) {
      const int32_t token = supply_.argmax(request, position);
      if (position == request.num_drafts || token != c.draft_at(request, position)) {
        return Decision{position, token, Job{Source::kNone, 0.0f}, 0};
      }
    }
  }

  // A draft's own entry of draft_probs. NaN for a draft of -1, too: that, and one whose entry is
  // NaN, nobody proposed.
  SPEC_FN float draft_prob(const Request& request, uint32_t position) const {
    const int32_t draft = c.draft_at(request, position);
    if (draft < 0) return kNan;
    if (!c.has(kHasDraftProbs)) return 1.0f;
    const uint64_t row = request.first_draft + position;
    const float q = c.draft_probs.GetValue(row * c.args.draft_stride +
                                           static_cast<uint32_t>(draft));
    // Never -0, for x / -0 is -inf.
    return q > 0.0f || is_nan(q) ? q : 0.0f;
  }

  SPEC_FN Decision by_token(const Request& request) {
    for (uint32_t position = 0; position < request.num_drafts; ++position) {
      const float q = draft_prob(request, position);
      if (is_nan(q)) return after(position, Source::kTarget, 1.0f);
      const Row row = supply_.row(request, position);
      if (!(uniform(request, position) * q < row.draft_prob())) {
        return after(position, Source::kResidual, 1.0f);
      }
    }
    return after(request.num_drafts, Source::kTarget, 1.0f);
  }

  // The last i with u_i below its chance wins. Rows are read until the weight shows that no more
  // drafts can be accepted: by the bound of one-hot drafts, or at 0 (docs/block_rule.md,
  // lemmas 4 and 2).
  SPEC_FN Decision by_block(const Request& request) {
    const bool one_hot = !c.has(kHasDraftProbs);
    Decision best = after(0, Source::kResidual, 1.0f);
    Product product;  // the weight
    float weight = 1.0f;
    uint32_t i = 0;  // drafts before the one looked at
    for (; i < request.num_drafts; ++i) {
      const float q = draft_prob(request, i);
      if (is_nan(q)) break;
      const bool is_over = one_hot ? weight <= least_uniform(request, i) : product.mantissa == 0.0f;
      if (is_over) return best;
      const Row row = supply_.row(request, i);
      if (i > 0) judge(request, i, weight, one_hot ? weight * row.rest / row.total() : -1.0f, best);
      product.multiply(row.draft_prob(), q);
      weight = product.value();
    }
    if (i == 0 || uniform(request, i - 1) < weight) best = after(i, Source::kTarget, 1.0f);
    return best;
  }

  // The least uniform that can still accept i drafts or more; 0 for i = 0. It is the bound of lemma
  // 4 for one-hot drafts.
  SPEC_FN float least_uniform(const Request& request, uint32_t i) const {
    float found = 2.0f;
    for (uint32_t j = i == 0 ? 0 : i - 1; j < request.num_drafts; ++j) {
      const float u = uniform(request, j);
      if (u < found) found = u;
    }
    return i == 0 ? 0.0f : found;
  }

  // Takes the first i drafts if they are accepted. `remains` is the sum of the residual after them;
  // a negative one is not known yet. It is not needed where u is not below the weight
  // (docs/block_rule.md, lemma 1).
  SPEC_FN void judge(const Request& request, uint32_t i, float weight, float remains,
                     Decision& best) {
    const float u = uniform(request, i - 1);
    c.chances.SetValue(i, 0.0f);
    if (!(u < weight)) return;
    if (weight >= 1.0f || (remains >= 0.0f && u < chance(weight, remains))) {
      best = after(i, Source::kResidual, weight);
    } else if (remains < 0.0f) {
      c.chances.SetValue(i, weight);
      best.open = i;
    }
  }

  Context<In>& c;
  Supply<In>& supply_;
};

}  // namespace spec
