// Tiling and workspace of a call of verify_tree. Host only.
#pragma once
#include "../verify_seeded/plan.h"
#include "call.h"

namespace spec {

inline std::string plan(const spec_verify_tree& call, uint32_t cores, const Wish& wish,
                        Tiling& tiling) {
  return plan_seeded(call, cores, wish, tiling);
}

}  // namespace spec
