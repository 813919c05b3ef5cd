// Tiling and workspace of a call of grammar_mask. Host only.
#pragma once
#include "../common/tiling.h"
#include "call.h"

namespace spec {

// Tiles are shared out mask by mask; there is nothing that a core could stop early at.
inline std::string plan(const spec_grammar_mask& call, uint32_t cores, const Wish& wish,
                        Tiling& tiling) {
  const Batch batch{call.num_masked, call.num_masked, call.vocab_size, 0};
  return plan(batch, cores, Wish{wish.tile, Mode::kSplit}, tiling);
}

}  // namespace spec
