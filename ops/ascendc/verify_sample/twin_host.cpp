// Runs verify_sample's kernels under the twin.
#include "verify_sample.cpp"

#include "../common/twin_host.h"

extern "C" {

struct spec_verify_sample {
  const void* logits;  // [num_rows, vocab_size], rows row_stride elements apart
  const int32_t* drafts;
  const int32_t* ends;
  const float* temperature;
  const int32_t* top_k;  // null: off; so are the next three
  const float* top_p;
  const float* min_p;
  const float* draft_probs;  // [num_drafts, vocab_size], rows draft_stride elements apart
  const double* accept_uniform;
  const double* sample_uniform;
  int32_t* tokens;  // [num_reqs, max_draft_len + 1]
  int32_t* counts;
  int64_t num_reqs, num_rows, vocab_size, row_stride, draft_stride, max_draft_len;
  int32_t dtype;
  int32_t block_rule;
};
}

namespace {

using SampleKernel = decltype(&spec_verify_sample_float32);

SampleKernel entry_of(int32_t dtype) {
  switch (static_cast<spec::Dtype>(dtype)) {
    case spec::Dtype::kFloat32: return spec_verify_sample_float32;
    case spec::Dtype::kBfloat16: return spec_verify_sample_bfloat16;
    default: return spec_verify_sample_float16;
  }
}

uint32_t flags_of(const spec_verify_sample& call, const spec::Tiling& tiling) {
  return (tiling.by_request ? spec::kByRequest : 0u) |
         (call.block_rule != 0 ? spec::kBlockRule : 0u) |
         (call.top_k != nullptr ? spec::kHasTopK : 0u) |
         (call.top_p != nullptr ? spec::kHasTopP : 0u) |
         (call.min_p != nullptr ? spec::kHasMinP : 0u) |
         (call.draft_probs != nullptr ? spec::kHasDraftProbs : 0u);
}

void add_tensors(twin::Kernel& kernel, const spec_verify_sample& call) {
  const int64_t size = spec::size_of(call.dtype), reqs = call.num_reqs;
  const int64_t drafts = call.num_rows - reqs;
  const auto add = [&](const char* name, const void* pointer, int64_t bytes) {
    if (pointer != nullptr) kernel.input(name, pointer, bytes);
  };
  kernel
      .input("logits", call.logits,
             spec::span(call.num_rows, call.vocab_size, call.row_stride, size))
      .rows(call.vocab_size * size, call.row_stride * size);
  if (call.draft_probs != nullptr) {
    kernel
        .input("draft_probs", call.draft_probs,
               spec::span(drafts, call.vocab_size, call.draft_stride, 4))
        .rows(call.vocab_size * 4, call.draft_stride * 4);
  }
  add("draft_token_ids", call.drafts, drafts * 4);
  add("cu_num_draft_tokens", call.ends, reqs * 4);
  add("temperature", call.temperature, reqs * 4);
  add("top_k", call.top_k, reqs * 4);
  add("top_p", call.top_p, reqs * 4);
  add("min_p", call.min_p, reqs * 4);
  add("accept_uniform", call.accept_uniform, drafts * 8);
  add("sample_uniform", call.sample_uniform, reqs * 8);
  kernel.output("output_token_ids", call.tokens, reqs * (call.max_draft_len + 1) * 4);
  kernel.output("num_output_tokens", call.counts, reqs * 4);
}

}  // namespace

extern "C" int spec_run_verify_sample(const spec_launch* launch, const spec_verify_sample* call) {
  const spec::Batch batch{call->num_rows, call->num_reqs, call->vocab_size, call->max_draft_len};
  spec::Tiling tiling;
  const std::string problem = spec::plan(
      batch, launch->num_cores, {launch->tile, static_cast<spec::Mode>(launch->mode)}, tiling);
  if (!problem.empty()) return spec::refuse(*launch, problem);

  const uint32_t flags = flags_of(*call, tiling);
  const auto tiles = static_cast<uint32_t>((call->vocab_size + tiling.tile - 1) / tiling.tile);
  const spec::SampleWorkspace layout(call->num_rows, tiles, tiling.cores, flags);
  spec::Workspace workspace(layout.bytes);
  twin::Kernel kernel("verify_sample", launch->options);
  add_tensors(kernel, *call);
  kernel.workspace("workspace", workspace.data(), layout.bytes);

  const auto entry = entry_of(call->dtype);
  const auto body = [&] {
    entry(spec::address(call->logits), spec::address(call->drafts), spec::address(call->ends),
          spec::address(call->temperature), spec::address(call->top_k), spec::address(call->top_p),
          spec::address(call->min_p), spec::address(call->draft_probs),
          spec::address(call->accept_uniform), spec::address(call->sample_uniform),
          spec::address(call->tokens), spec::address(call->counts), workspace.data(),
          static_cast<uint32_t>(call->num_reqs), static_cast<uint32_t>(call->num_rows),
          static_cast<uint32_t>(call->vocab_size), static_cast<uint32_t>(call->max_draft_len),
          static_cast<uint64_t>(call->row_stride), static_cast<uint64_t>(call->draft_stride),
          tiling.tile, flags);
  };
  return spec::status_of(
      kernel.run(static_cast<int>(tiling.cores), body, launch->stats, launch->error));
}
