// Runs verify_seeded's kernels under the emulator.
#include "verify_seeded.cpp"

#include "../common/emulator_host.h"
#include "plan.h"

namespace {

void add_tensors(emulator::Kernel& kernel, const spec_verify_seeded& call) {
  const int64_t size = spec::size_of(call.dtype), reqs = call.num_reqs;
  const auto add = [&](const char* name, const void* pointer, int64_t bytes) {
    if (pointer != nullptr) kernel.input(name, pointer, bytes);
  };
  kernel
      .input("logits", call.logits,
             spec::span(call.num_rows, call.vocab_size, call.row_stride, size))
      .rows(call.vocab_size * size, call.row_stride * size);
  add("draft_token_ids", call.drafts, (call.num_rows - reqs) * 4);
  add("cu_num_draft_tokens", call.ends, reqs * 4);
  add("temperature", call.temperature, reqs * 4);
  add("top_k", call.top_k, reqs * 4);
  add("top_p", call.top_p, reqs * 4);
  add("min_p", call.min_p, reqs * 4);
  add("seeds", call.seeds, reqs * 8);
  add("positions", call.positions, reqs * 8);
  kernel.output("output_token_ids", call.tokens, reqs * (call.max_draft_len + 1) * 4);
  kernel.output("num_output_tokens", call.counts, reqs * 4);
}

}  // namespace

extern "C" int spec_run_verify_seeded(const spec_launch* launch, const spec_verify_seeded* call) {
  spec::Tiling tiling;
  const std::string problem = spec::plan(*call, launch->num_cores, spec::wish_of(*launch), tiling);
  if (!problem.empty()) return spec::refuse(*launch, problem);

  spec::Workspace workspace(tiling.workspace);
  emulator::Kernel kernel("verify_seeded", launch->options);
  add_tensors(kernel, *call);
  kernel.workspace("workspace", workspace.data(), tiling.workspace);

#define SPEC_RUN(kernel) kernel(SPEC_SEEDED_CALL(*call, tiling, workspace.data()))
  const auto body = [&] { SPEC_FOR_DTYPE(call->dtype, spec_verify_seeded, SPEC_RUN) };
  return spec::status_of(
      kernel.run(static_cast<int>(tiling.cores), body, launch->stats, launch->error));
}
