// Lends the host's tiling and the cores' split to Python.
#include <cstdio>

#include "../../../ops/ascendc/grammar_mask/plan.h"
#include "../../../ops/ascendc/verify_greedy/plan.h"
#include "../../../ops/ascendc/verify_sample/plan.h"

extern "C" {

struct plan_result {
  int64_t cores, tile, by_request, workspace;
  char problem[256];
};

// `flags`: what the call has, as spec::Flag.
void plan_verify_sample(int64_t num_reqs, int64_t num_rows, int64_t vocab_size,
                        int64_t max_draft_len, int64_t flags, int64_t cores, int64_t tile,
                        int64_t mode, plan_result* result) {
  spec_verify_sample call{};
  call.num_reqs = num_reqs;
  call.num_rows = num_rows;
  call.vocab_size = vocab_size;
  call.max_draft_len = max_draft_len;
  const float some = 0.0f;
  const int32_t few = 0;
  if (flags & spec::kHasTopK) call.top_k = &few;
  if (flags & spec::kHasTopP) call.top_p = &some;
  if (flags & spec::kHasMinP) call.min_p = &some;
  if (flags & spec::kHasDraftProbs) call.draft_probs = &some;
  spec::Tiling tiling;
  const std::string problem = spec::plan(call, static_cast<uint32_t>(cores),
                                         {tile, static_cast<spec::Mode>(mode)}, tiling);
  std::snprintf(result->problem, sizeof result->problem, "%s", problem.c_str());
  result->cores = tiling.cores;
  result->tile = tiling.tile;
  result->by_request = tiling.by_request;
  result->workspace = static_cast<int64_t>(tiling.workspace);
}

int64_t split_first(int64_t rows, int64_t tiles, int64_t cores, int64_t core) {
  return static_cast<int64_t>(spec::Split(rows, tiles, cores).first(core));
}
int64_t split_core_of(int64_t rows, int64_t tiles, int64_t cores, int64_t tile) {
  return spec::Split(rows, tiles, cores).core_of(tile);
}
}
