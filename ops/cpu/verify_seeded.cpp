#include <memory>

#include "request.h"
#include "seeded_rows.h"

namespace spec {
namespace {

void verify_one(Request& request, SeededRows rows) {
  for (int i = 0;; i++) {
    const int draft = i < request.num_drafts ? request.draft_ids[i] : -1;
    const int token = rows.token(request.row(i), i, draft);
    if (draft != token) return request.finish(i, token);
  }
}

}  // namespace

void verify_seeded(const Logits& logits, const Drafts& drafts, const SeededArguments& arguments,
                   const Outputs& outputs, int64_t begin, int64_t end) {
  const auto scratch = std::make_unique<Scratch>();
  for (int64_t index = begin; index < end; index++) {
    Request request(logits, drafts, outputs, index);
    verify_one(request, SeededRows(arguments, index, *scratch));
  }
}

}  // namespace spec
