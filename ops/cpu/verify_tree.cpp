#include <algorithm>
#include <memory>

#include "request.h"
#include "seeded_rows.h"

namespace spec {
namespace {

// The nodes of a request's tree. Row 0 is the root's, row i + 1 that of node i.
class Tree {
 public:
  Tree(const Request& request, const int32_t* parents)
      : request_(request), parents_(parents + request.first_draft) {}

  // The row of the first child that holds a token, or 0: no child is the root.
  int child_with(int row, int token) const {
    int node = next_child(row, row);
    while (node < request_.num_drafts && request_.draft_ids[node] != token) {
      node = next_child(row, node + 1);
    }
    return node < request_.num_drafts ? node + 1 : 0;
  }

  // What the first child holds, which is mostly the likeliest token; -1 if there is none.
  int first_token(int row) const {
    const int node = next_child(row, row);
    return node < request_.num_drafts ? request_.draft_ids[node] : -1;
  }

 private:
  // The first of the nodes from `node` on that is a child. Children come after their parents.
  int next_child(int row, int node) const {
    const int32_t* const end = parents_ + request_.num_drafts;
    return static_cast<int>(std::find(parents_ + node, end, row - 1) - parents_);
  }

  const Request& request_;
  const int32_t* const parents_;
};

void verify_one(Request& request, const Tree& tree, SeededRows rows, int32_t* path) {
  int row = 0, count = 0;
  do {
    const int token = rows.token(request.row(row), count, tree.first_token(row));
    request.put(count, token);
    path[count++] = row;
    row = tree.child_with(row, token);
  } while (row != 0);
  request.end(count);
  std::fill(path + count, path + request.width, -1);
}

}  // namespace

void verify_tree(const Logits& logits, const Drafts& drafts, const int32_t* parents,
                 const SeededArguments& arguments, const Outputs& outputs, int32_t* paths,
                 int64_t begin, int64_t end) {
  const auto scratch = std::make_unique<Scratch>();
  for (int64_t index = begin; index < end; index++) {
    Request request(logits, drafts, outputs, index);
    verify_one(request, Tree(request, parents), SeededRows(arguments, index, *scratch),
               paths + index * request.width);
  }
}

}  // namespace spec
