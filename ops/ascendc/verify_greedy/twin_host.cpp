// Runs verify_greedy's kernels under the twin.
#include "verify_greedy.cpp"

#include "../common/twin_host.h"

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

int spec_run_verify_greedy(const spec_launch* launch, const spec_verify_greedy* call) {
  const spec::Batch batch{call->num_rows, call->num_reqs, call->vocab_size, call->max_draft_len};
  spec::Tiling tiling;
  const std::string problem = spec::plan(
      batch, launch->num_cores, {launch->tile, static_cast<spec::Mode>(launch->mode)}, tiling);
  if (!problem.empty()) return spec::refuse(*launch, problem);

  const int64_t size = spec::size_of(call->dtype), reqs = call->num_reqs;
  const uint64_t space = spec::greedy_workspace(call->num_rows, tiling.cores);
  spec::Workspace workspace(space);
  twin::Kernel kernel("verify_greedy", launch->options);
  kernel
      .input("logits", call->logits,
             spec::span(call->num_rows, call->vocab_size, call->row_stride, size))
      .rows(call->vocab_size * size, call->row_stride * size);
  kernel.input("draft_token_ids", call->drafts, (call->num_rows - reqs) * 4);
  kernel.input("cu_num_draft_tokens", call->ends, reqs * 4);
  kernel.output("output_token_ids", call->tokens, reqs * (call->max_draft_len + 1) * 4);
  kernel.output("num_output_tokens", call->counts, reqs * 4);
  kernel.workspace("workspace", workspace.data(), space);

  const auto entry = static_cast<spec::Dtype>(call->dtype) == spec::Dtype::kFloat32
                         ? spec_verify_greedy_float32
                     : static_cast<spec::Dtype>(call->dtype) == spec::Dtype::kBfloat16
                         ? spec_verify_greedy_bfloat16
                         : spec_verify_greedy_float16;
  const auto body = [&] {
    entry(spec::address(call->logits), spec::address(call->drafts), spec::address(call->ends),
          spec::address(call->tokens), spec::address(call->counts), workspace.data(),
          static_cast<uint32_t>(reqs), static_cast<uint32_t>(call->num_rows),
          static_cast<uint32_t>(call->vocab_size), static_cast<uint32_t>(call->max_draft_len),
          static_cast<uint64_t>(call->row_stride), tiling.tile, tiling.by_request ? 1u : 0u);
  };
  return spec::status_of(
      kernel.run(static_cast<int>(tiling.cores), body, launch->stats, launch->error));
}
}
