#include <memory>

#include "request.h"

namespace spec {

void Request::verify_greedily(Scratch& scratch) {
  for (int i = 0; i <= num_drafts; i++) {
    const int token = argmax(row(i), scratch.values);
    if (i == num_drafts || draft_ids[i] != token) return finish(i, token);
  }
}

void verify_greedy(const Logits& logits, const Drafts& drafts, const Outputs& outputs,
                   int64_t begin, int64_t end) {
  const auto scratch = std::make_unique<Scratch>();
  for (int64_t index = begin; index < end; index++) {
    Request(logits, drafts, outputs, index).verify_greedily(*scratch);
  }
}

}  // namespace spec
