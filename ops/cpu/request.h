// One request of a verification: where its rows and drafts are and where its tokens go.
#pragma once

#include <algorithm>

#include "verify.h"

namespace spec {

class Request {
 public:
  Request(const Logits& logits, const Drafts& drafts, const Outputs& outputs, int64_t index)
      : first_draft(drafts.start(index)),
        num_drafts(drafts.count(index)),
        draft_ids(drafts.token_ids + first_draft),
        logits_(logits),
        first_row_(first_draft + index),
        tokens_(outputs.token_ids + index * (drafts.max_draft_len + 1)),
        width_(drafts.max_draft_len + 1),
        count_(outputs.counts + index) {}

  Row row(int position) const { return Row(logits_, first_row_ + position); }

  // The output: `num_accepted` drafts and one token more.
  void finish(int num_accepted, int token) {
    std::copy_n(draft_ids, num_accepted, tokens_);
    tokens_[num_accepted] = token;
    std::fill(tokens_ + num_accepted + 1, tokens_ + width_, -1);
    *count_ = num_accepted + 1;
  }

  void verify_greedily(Scratch& scratch);

  const int first_draft;
  const int num_drafts;
  const int32_t* const draft_ids;

 private:
  const Logits& logits_;
  const int64_t first_row_;
  int32_t* const tokens_;
  const int64_t width_;
  int32_t* const count_;
};

}  // namespace spec
