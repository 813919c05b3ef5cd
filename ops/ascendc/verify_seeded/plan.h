// Tiling and workspace of a call of verify_seeded. Host only.
#pragma once
#include "../common/tiling.h"
#include "arguments.h"
#include "call.h"

namespace spec {

// Logits of eight groups of noise: their least numbers fill data blocks.
constexpr int64_t kSeededUnit = 1024;

template <typename Call>
uint32_t flags_of_seeded(const Call& call, const Tiling& tiling) {
  return (tiling.by_request ? kByRequest : 0u) | (call.top_k != nullptr ? kHasTopK : 0u) |
         (call.top_p != nullptr ? kHasTopP : 0u) | (call.min_p != nullptr ? kHasMinP : 0u);
}

// Of verify_tree, too.
template <typename Call>
std::string plan_seeded(const Call& call, uint32_t cores, const Wish& wish, Tiling& tiling) {
  if (wish.tile % kSeededUnit != 0) {
    return "tile: " + std::to_string(wish.tile) + " is not a multiple of " +
           std::to_string(kSeededUnit);
  }
  const Batch batch{call.num_rows, call.num_reqs, call.vocab_size, call.max_draft_len};
  const std::string problem = plan(batch, cores, wish, tiling);
  if (!problem.empty()) return problem;
  const auto tiles = static_cast<uint32_t>((call.vocab_size + tiling.tile - 1) / tiling.tile);
  tiling.flags = flags_of_seeded(call, tiling);
  tiling.workspace = SeededWorkspace(static_cast<uint32_t>(call.num_rows), tiles, tiling.tile,
                                     tiling.cores, tiling.flags)
                         .bytes;
  return "";
}

inline std::string plan(const spec_verify_seeded& call, uint32_t cores, const Wish& wish,
                        Tiling& tiling) {
  return plan_seeded(call, cores, wish, tiling);
}

}  // namespace spec
