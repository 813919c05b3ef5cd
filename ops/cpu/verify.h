// The verification ops for a range of requests. The contract is in the docstrings of
// vllm_ascend_spec/ops/verify_greedy, verify_sample, verify_seeded and verify_tree.
#pragma once

#include "distribution.h"

namespace spec {

struct Drafts {
  const int32_t* token_ids;  // [num_drafts], -1 cannot be accepted
  const int32_t* ends;       // [num_reqs], inclusive cumulative counts
  int64_t max_draft_len;

  int start(int64_t request) const { return request ? ends[request - 1] : 0; }
  int count(int64_t request) const { return ends[request] - start(request); }
};

struct SamplingParameters {
  const float* temperature;  // [num_reqs]
  const int32_t* top_k;      // [num_reqs] or null
  const float* top_p;        // [num_reqs] or null
  const float* min_p;        // [num_reqs] or null

  Sampling of(int64_t request) const {
    return {temperature[request], top_k ? top_k[request] : 0, top_p ? top_p[request] : 1.0f,
            min_p ? min_p[request] : 0.0f};
  }
};

struct SampleArguments {
  SamplingParameters sampling;
  const float* draft_probs;      // [num_drafts, vocab] or null: one-hot; may hold anything
  int64_t draft_probs_stride;    // in elements
  const double* accept_uniform;  // [num_drafts]
  const double* sample_uniform;  // [num_reqs]
};

struct SeededArguments {
  SamplingParameters sampling;
  const int64_t* seeds;      // [num_reqs]
  const int64_t* positions;  // [num_reqs], of the token that the first row yields
};

struct Outputs {
  int32_t* token_ids;  // [num_reqs, max_draft_len + 1]
  int32_t* counts;     // [num_reqs]
};

enum class Rule : int64_t { kToken = 0, kBlock = 1 };

void verify_greedy(const Logits& logits, const Drafts& drafts, const Outputs& outputs,
                   int64_t begin, int64_t end);
void verify_sample(const Logits& logits, const Drafts& drafts, const SampleArguments& arguments,
                   Rule rule, const Outputs& outputs, int64_t begin, int64_t end);
void verify_seeded(const Logits& logits, const Drafts& drafts, const SeededArguments& arguments,
                   const Outputs& outputs, int64_t begin, int64_t end);
// parents: [num_drafts], nodes of the same request. paths: [num_reqs, max_draft_len + 1], written.
void verify_tree(const Logits& logits, const Drafts& drafts, const int32_t* parents,
                 const SeededArguments& arguments, const Outputs& outputs, int32_t* paths,
                 int64_t begin, int64_t end);

}  // namespace spec
