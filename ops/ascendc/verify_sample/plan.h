// Tiling and workspace of a call of verify_sample. Host only.
#pragma once
#include "../common/tiling.h"
#include "arguments.h"
#include "call.h"

namespace spec {

inline uint32_t flags_of(const spec_verify_sample& call, const Tiling& tiling) {
  return (tiling.by_request ? kByRequest : 0u) | (call.block_rule != 0 ? kBlockRule : 0u) |
         (call.top_k != nullptr ? kHasTopK : 0u) | (call.top_p != nullptr ? kHasTopP : 0u) |
         (call.min_p != nullptr ? kHasMinP : 0u) |
         (call.draft_probs != nullptr ? kHasDraftProbs : 0u);
}

inline std::string plan(const spec_verify_sample& call, uint32_t cores, const Wish& wish,
                        Tiling& tiling) {
  const Batch batch{call.num_rows, call.num_reqs, call.vocab_size, call.max_draft_len};
  const std::string problem = plan(batch, cores, wish, tiling);
  if (!problem.empty()) return problem;
  const auto tiles = static_cast<uint32_t>((call.vocab_size + tiling.tile - 1) / tiling.tile);
  tiling.flags = flags_of(call, tiling);
  tiling.workspace = SampleWorkspace(static_cast<uint32_t>(call.num_rows), tiles, tiling.cores,
                                     tiling.flags)
                         .bytes;
  return "";
}

}  // namespace spec
