// Structured-output masks; the contract is in vllm_ascend_spec/ops/grammar_mask.
#pragma once

#include <cstdint>

#include "logits.h"

namespace spec {

struct Masks {
  const int32_t* words;  // [num_masked, num_words]
  int64_t num_words;
  const int32_t* rows;  // [num_masked], -1 skips
};

void grammar_mask(void* logits, DType dtype, int64_t row_stride, int vocab, const Masks& masks,
                  int64_t begin, int64_t end);

}  // namespace spec
