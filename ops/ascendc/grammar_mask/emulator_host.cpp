// Runs grammar_mask's kernels under the emulator.
#include "grammar_mask.cpp"

#include "../common/emulator_host.h"
#include "plan.h"

extern "C" int spec_run_grammar_mask(const spec_launch* launch, const spec_grammar_mask* call) {
  spec::Tiling tiling;
  const std::string problem = spec::plan(*call, launch->num_cores, spec::wish_of(*launch), tiling);
  if (!problem.empty()) return spec::refuse(*launch, problem);

  const int64_t size = spec::size_of(call->dtype);
  emulator::Kernel kernel("grammar_mask", launch->options);
  kernel
      .inout("logits", call->logits,
             spec::span(call->num_rows, call->vocab_size, call->row_stride, size))
      .rows(call->vocab_size * size, call->row_stride * size);
  kernel.input("bitmask", call->bitmask, call->num_masked * call->num_words * 4);
  kernel.input("row_indices", call->row_indices, call->num_masked * 4);

#define SPEC_RUN(kernel) kernel(SPEC_GRAMMAR_CALL(*call, tiling))
  const auto body = [&] { SPEC_FOR_DTYPE(call->dtype, spec_grammar_mask, SPEC_RUN) };
  return spec::status_of(
      kernel.run(static_cast<int>(tiling.cores), body, launch->stats, launch->error));
}
