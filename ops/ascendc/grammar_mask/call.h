// One call of grammar_mask, as the host sees it.
#pragma once
#include "../common/call.h"

extern "C" {

struct spec_grammar_mask {
  void* logits;            // [num_rows, vocab_size], rows row_stride elements apart
  const int32_t* bitmask;  // [num_masked, num_words]
  const int32_t* row_indices;
  int64_t num_masked, num_words, num_rows, vocab_size, row_stride;
  int32_t dtype;
};
}

// The kernels' arguments.
#define SPEC_GRAMMAR_CALL(call, tiling)                                                          \
  spec::address((call).logits), spec::address((call).bitmask), spec::address((call).row_indices), \
      static_cast<uint32_t>((call).num_masked), static_cast<uint32_t>((call).num_words),         \
      static_cast<uint32_t>((call).vocab_size), static_cast<uint64_t>((call).row_stride),        \
      (tiling).tile
