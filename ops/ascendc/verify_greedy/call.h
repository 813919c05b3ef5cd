// One call of verify_greedy, as the host sees it.
#pragma once
#include "../common/call.h"

extern "C" {

struct spec_verify_greedy {
  const void* logits;  // [num_rows, vocab_size], rows row_stride elements apart
  const int32_t* drafts;
  const int32_t* ends;
  int32_t* tokens;  // [num_reqs, max_draft_len + 1]
  int32_t* counts;
  int64_t num_reqs, num_rows, vocab_size, row_stride, max_draft_len;
  int32_t dtype;
};
}

// The kernels' arguments.
#define SPEC_GREEDY_CALL(call, tiling, workspace)                                              \
  spec::address((call).logits), spec::address((call).drafts), spec::address((call).ends),      \
      spec::address((call).tokens), spec::address((call).counts), spec::address(workspace),    \
      static_cast<uint32_t>((call).num_reqs), static_cast<uint32_t>((call).num_rows),          \
      static_cast<uint32_t>((call).vocab_size), static_cast<uint32_t>((call).max_draft_len),   \
      static_cast<uint64_t>((call).row_stride), (tiling).tile, (tiling).by_request ? 1u : 0u
