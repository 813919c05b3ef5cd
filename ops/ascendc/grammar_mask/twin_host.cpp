// Runs grammar_mask's kernels under the twin.
#include "grammar_mask.cpp"

#include "../common/twin_host.h"

extern "C" {

struct spec_grammar_mask {
  void* logits;             // [num_rows, vocab_size], rows row_stride elements apart
  const int32_t* bitmask;   // [num_masked, num_words]
  const int32_t* row_indices;
  int64_t num_masked, num_words, num_rows, vocab_size, row_stride;
  int32_t dtype;
};

int spec_run_grammar_mask(const spec_launch* launch, const spec_grammar_mask* call) {
  spec::Tiling tiling;
  const spec::Batch batch{call->num_masked, call->num_masked, call->vocab_size, 0};
  const std::string problem =
      spec::plan(batch, launch->num_cores, {launch->tile, spec::Mode::kSplit}, tiling);
  if (!problem.empty()) return spec::refuse(*launch, problem);

  const int64_t size = spec::size_of(call->dtype);
  twin::Kernel kernel("grammar_mask", launch->options);
  kernel
      .inout("logits", call->logits,
             spec::span(call->num_rows, call->vocab_size, call->row_stride, size))
      .rows(call->vocab_size * size, call->row_stride * size);
  kernel.input("bitmask", call->bitmask, call->num_masked * call->num_words * 4);
  kernel.input("row_indices", call->row_indices, call->num_masked * 4);

  const auto entry = static_cast<spec::Dtype>(call->dtype) == spec::Dtype::kFloat32
                         ? spec_grammar_mask_float32
                     : static_cast<spec::Dtype>(call->dtype) == spec::Dtype::kBfloat16
                         ? spec_grammar_mask_bfloat16
                         : spec_grammar_mask_float16;
  const auto body = [&] {
    entry(spec::address(call->logits), spec::address(call->bitmask),
          spec::address(call->row_indices), static_cast<uint32_t>(call->num_masked),
          static_cast<uint32_t>(call->num_words), static_cast<uint32_t>(call->vocab_size),
          static_cast<uint64_t>(call->row_stride), tiling.tile);
  };
  return spec::status_of(
      kernel.run(static_cast<int>(tiling.cores), body, launch->stats, launch->error));
}
}
