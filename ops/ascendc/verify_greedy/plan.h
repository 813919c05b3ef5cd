// Tiling and workspace of a call of verify_greedy. Host only.
#pragma once
#include "../common/tiling.h"
#include "call.h"

namespace spec {

inline std::string plan(const spec_verify_greedy& call, uint32_t cores, const Wish& wish,
                        Tiling& tiling) {
  const Batch batch{call.num_rows, call.num_reqs, call.vocab_size, call.max_draft_len};
  const std::string problem = plan(batch, cores, wish, tiling);
  if (!problem.empty()) return problem;
  const auto rows = static_cast<uint32_t>(call.num_rows);
  // A data block for each core's share of a row.
  tiling.workspace = static_cast<uint64_t>(num_slots(rows, tiling.cores)) * kBlock;
  return "";
}

}  // namespace spec
