// The nodes of each request's tree. Row 0 is the root's, row i + 1 that of node i.
#pragma once
#include "../verify_sample/context.h"

namespace spec {

class Tree {
 public:
  SPEC_FN explicit Tree(Address parents) {
    parents_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(parents));
  }

  // How deep a row is below the root.
  SPEC_FN uint32_t of(const Request& request, uint32_t row) const {
    uint32_t depth = 0;
    // Always a row further up: a wrong parent must not keep this going.
    for (; row != 0; ++depth) row = least(above(request, row - 1), row - 1);
    return depth;
  }

  // The row of the first child that holds a token, or 0: no child is the root.
  template <typename In>
  SPEC_FN uint32_t child_with(const Context<In>& c, const Request& request, uint32_t row,
                              int32_t token) const {
    // Children come after their parents.
    for (uint32_t node = row; node < request.num_drafts; ++node) {
      if (above(request, node) == row && c.draft_at(request, node) == token) return node + 1;
    }
    return 0;
  }

 private:
  // The row of a node's parent.
  SPEC_FN uint32_t above(const Request& request, uint32_t node) const {
    return static_cast<uint32_t>(parents_.GetValue(request.first_draft + node)) + 1;
  }

  GlobalTensor<int32_t> parents_;
};

}  // namespace spec
