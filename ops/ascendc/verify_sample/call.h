// One call of verify_sample, as the host sees it.
#pragma once
#include "../common/call.h"

extern "C" {

struct spec_verify_sample {
  const void* logits;  // [num_rows, vocab_size], rows row_stride elements apart
  const int32_t* drafts;
  const int32_t* ends;
  const float* temperature;
  const int32_t* top_k;  // null: off; so are the next three
  const float* top_p;
  const float* min_p;
  const float* draft_probs;  // [num_drafts, vocab_size], rows draft_stride elements apart
  const double* accept_uniform;
  const double* sample_uniform;
  int32_t* tokens;  // [num_reqs, max_draft_len + 1]
  int32_t* counts;
  int64_t num_reqs, num_rows, vocab_size, row_stride, draft_stride, max_draft_len;
  int32_t dtype;
  int32_t block_rule;
};
}

// The kernels' arguments.
#define SPEC_SAMPLE_CALL(call, tiling, workspace)                                              \
  spec::address((call).logits), spec::address((call).drafts), spec::address((call).ends),      \
      spec::address((call).temperature), spec::address((call).top_k),                          \
      spec::address((call).top_p), spec::address((call).min_p),                                \
      spec::address((call).draft_probs), spec::address((call).accept_uniform),                 \
      spec::address((call).sample_uniform), spec::address((call).tokens),                      \
      spec::address((call).counts), spec::address(workspace),                                  \
      static_cast<uint32_t>((call).num_reqs), static_cast<uint32_t>((call).num_rows),          \
      static_cast<uint32_t>((call).vocab_size), static_cast<uint32_t>((call).max_draft_len),   \
      static_cast<uint64_t>((call).row_stride), static_cast<uint64_t>((call).draft_stride),    \
      (tiling).tile, (tiling).flags
