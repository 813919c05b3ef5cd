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
        width(drafts.max_draft_len + 1),
        logits_(logits),
        first_row_(first_draft + index),
        tokens_(outputs.token_ids + index * width),
        count_(outputs.counts + index) {}

  Row row(int position) const { return Row(logits_, first_row_ + position); }

  // The output: `num_accepted` drafts and one token more.
  void finish(int num_accepted, int token) {
    std::copy_n(draft_ids, num_accepted, tokens_);
    put(num_accepted, token);
    end(num_accepted + 1);
  }

  // The same token by token.
  void put(int place, int token) { tokens_[place] = token; }
  void end(int count) {
    std::fill(tokens_ + count, tokens_ + width, -1);
    *count_ = count;
  }

  void verify_greedily(Scratch& scratch);

  const int first_draft;
  const int num_drafts;
  const int32_t* const draft_ids;
  const int64_t width;  // of the output

 private:
  const Logits& logits_;
  const int64_t first_row_;
  int32_t* const tokens_;
  int32_t* const count_;
};

}  // namespace spec
