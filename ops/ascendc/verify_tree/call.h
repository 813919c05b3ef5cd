// One call of verify_tree, as the host sees it.
#pragma once
#include "../common/call.h"

extern "C" {

struct spec_verify_tree {
  const void* logits;  // [num_rows, vocab_size], rows row_stride elements apart
  const int32_t* drafts;
  const int32_t* ends;
  const int32_t* parents;
  const float* temperature;
  const int32_t* top_k;  // null: off; so are the next two
  const float* top_p;
  const float* min_p;
  const int64_t* seeds;
  const int64_t* positions;
  int32_t* tokens;  // [num_reqs, max_draft_len + 1]
  int32_t* counts;
  int32_t* paths;  // [num_reqs, max_draft_len + 1]
  int64_t num_reqs, num_rows, vocab_size, row_stride, max_draft_len;
  int32_t dtype;
};
}

// The kernels' arguments.
#define SPEC_TREE_CALL(call, tiling, workspace)                                                \
  spec::address((call).logits), spec::address((call).drafts), spec::address((call).ends),      \
      spec::address((call).parents), spec::address((call).temperature),                        \
      spec::address((call).top_k), spec::address((call).top_p), spec::address((call).min_p),   \
      spec::address((call).seeds), spec::address((call).positions),                            \
      spec::address((call).tokens), spec::address((call).counts), spec::address((call).paths), \
      spec::address(workspace), static_cast<uint32_t>((call).num_reqs),                        \
      static_cast<uint32_t>((call).num_rows), static_cast<uint32_t>((call).vocab_size),        \
      static_cast<uint32_t>((call).max_draft_len),                                             \
      static_cast<uint64_t>((call).row_stride), (tiling).tile, (tiling).flags
