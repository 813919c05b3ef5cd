// The kernels' entries, one a type of logits.
#include "grammar_mask.h"

#define SPEC_GRAMMAR_KERNEL(Name, In)                                                            \
  extern "C" __global__ __aicore__ void Name(GM_ADDR logits, GM_ADDR bitmask, GM_ADDR row_indices, \
                                             uint32_t num_masked, uint32_t num_words,            \
                                             uint32_t vocab_size, uint64_t row_stride,           \
                                             uint32_t tile) {                                    \
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);                                              \
    AscendC::TPipe pipe;                                                                         \
    spec::GrammarMask<In> kernel;                                                                \
    kernel.init(pipe, spec::GrammarArguments{logits, bitmask, row_indices, num_masked, num_words, \
                                             vocab_size, row_stride, tile});                     \
    kernel.run();                                                                                \
  }

SPEC_GRAMMAR_KERNEL(spec_grammar_mask_float32, float)
SPEC_GRAMMAR_KERNEL(spec_grammar_mask_bfloat16, bfloat16_t)
SPEC_GRAMMAR_KERNEL(spec_grammar_mask_float16, half)
