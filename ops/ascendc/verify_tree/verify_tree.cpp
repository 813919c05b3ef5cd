// The kernels' entries, one a type of logits.
#include "verify_tree.h"

#define SPEC_TREE_PARAMETERS                                                                    \
  GM_ADDR logits, GM_ADDR drafts, GM_ADDR ends, GM_ADDR parents, GM_ADDR temperature,           \
      GM_ADDR top_k, GM_ADDR top_p, GM_ADDR min_p, GM_ADDR seeds, GM_ADDR positions,            \
      GM_ADDR tokens, GM_ADDR counts, GM_ADDR paths, GM_ADDR workspace, uint32_t num_reqs,      \
      uint32_t num_rows, uint32_t vocab_size, uint32_t max_draft_len, uint64_t row_stride,      \
      uint32_t tile, uint32_t flags
#define SPEC_TREE_ARGUMENTS                                                                     \
  logits, drafts, ends, temperature, top_k, top_p, min_p, nullptr, nullptr, nullptr, tokens,    \
      counts, workspace, num_reqs, num_rows, vocab_size, max_draft_len, row_stride, 0, tile, flags

#define SPEC_TREE_KERNEL(Name, In)                                         \
  extern "C" __global__ __aicore__ void Name(SPEC_TREE_PARAMETERS) {       \
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);                     \
    AscendC::TPipe pipe;                                                   \
    spec::Context<In> context;                                             \
    context.init(pipe, spec::SampleArguments{SPEC_TREE_ARGUMENTS});        \
    spec::VerifyTree<In> kernel(context, seeds, positions, parents);       \
    kernel.init(pipe, paths);                                              \
    kernel.run();                                                          \
  }

SPEC_TREE_KERNEL(spec_verify_tree_float32, float)
SPEC_TREE_KERNEL(spec_verify_tree_bfloat16, bfloat16_t)
SPEC_TREE_KERNEL(spec_verify_tree_float16, half)
