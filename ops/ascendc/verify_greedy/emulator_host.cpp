// Runs verify_greedy's kernels under the emulator.
#include "verify_greedy.cpp"

#include "../common/emulator_host.h"
#include "plan.h"

extern "C" int spec_run_verify_greedy(const spec_launch* launch, const spec_verify_greedy* call) {
  spec::Tiling tiling;
  const std::string problem = spec::plan(*call, launch->num_cores, spec::wish_of(*launch), tiling);
  if (!problem.empty()) return spec::refuse(*launch, problem);

  const int64_t size = spec::size_of(call->dtype), reqs = call->num_reqs;
  spec::Workspace workspace(tiling.workspace);
  emulator::Kernel kernel("verify_greedy", launch->options);
  kernel
      .input("logits", call->logits,
             spec::span(call->num_rows, call->vocab_size, call->row_stride, size))
      .rows(call->vocab_size * size, call->row_stride * size);
  kernel.input("draft_token_ids", call->drafts, (call->num_rows - reqs) * 4);
  kernel.input("cu_num_draft_tokens", call->ends, reqs * 4);
  kernel.output("output_token_ids", call->tokens, reqs * (call->max_draft_len + 1) * 4);
  kernel.output("num_output_tokens", call->counts, reqs * 4);
  kernel.workspace("workspace", workspace.data(), tiling.workspace);

#define SPEC_RUN(kernel) kernel(SPEC_GREEDY_CALL(*call, tiling, workspace.data()))
  const auto body = [&] { SPEC_FOR_DTYPE(call->dtype, spec_verify_greedy, SPEC_RUN) };
  return spec::status_of(
      kernel.run(static_cast<int>(tiling.cores), body, launch->stats, launch->error));
}
