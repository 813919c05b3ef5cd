// The kernels' entries, one a type of logits.
#include "verify_greedy.h"

#define SPEC_GREEDY_PARAMETERS                                                                \
  GM_ADDR logits, GM_ADDR drafts, GM_ADDR ends, GM_ADDR tokens, GM_ADDR counts,               \
      GM_ADDR workspace, uint32_t num_reqs, uint32_t num_rows, uint32_t vocab_size,           \
      uint32_t max_draft_len, uint64_t row_stride, uint32_t tile, uint32_t by_request
#define SPEC_GREEDY_ARGUMENTS                                                                 \
  logits, drafts, ends, tokens, counts, workspace, num_reqs, num_rows, vocab_size,            \
      max_draft_len, row_stride, tile, by_request

#define SPEC_GREEDY_KERNEL(Name, In)                                  \
  extern "C" __global__ __aicore__ void Name(SPEC_GREEDY_PARAMETERS) { \
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);                \
    AscendC::TPipe pipe;                                              \
    spec::VerifyGreedy<In> kernel;                                    \
    kernel.init(pipe, spec::GreedyArguments{SPEC_GREEDY_ARGUMENTS});  \
    kernel.run();                                                     \
  }

SPEC_GREEDY_KERNEL(spec_verify_greedy_float32, float)
SPEC_GREEDY_KERNEL(spec_verify_greedy_bfloat16, bfloat16_t)
SPEC_GREEDY_KERNEL(spec_verify_greedy_float16, half)
