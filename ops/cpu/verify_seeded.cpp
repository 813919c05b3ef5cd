#include <memory>

#include "request.h"

namespace spec {
namespace {

void verify_one(Request& request, const Sampling& sampling, int64_t seed, int64_t position,
                Scratch& scratch) {
  for (int i = 0;; i++) {
    Distribution p(request.row(i));
    const int draft = i < request.num_drafts ? request.draft_ids[i] : -1;
    const int token = p.sample(sampling, Noise(seed, position + i), draft, scratch);
    if (draft != token) return request.finish(i, token);
  }
}

}  // namespace

void verify_seeded(const Logits& logits, const Drafts& drafts, const SeededArguments& arguments,
                   const Outputs& outputs, int64_t begin, int64_t end) {
  const auto scratch = std::make_unique<Scratch>();
  for (int64_t index = begin; index < end; index++) {
    Request request(logits, drafts, outputs, index);
    const Sampling sampling = arguments.sampling.of(index);
    if (sampling.temperature == 0) {
      request.verify_greedily(*scratch);
    } else {
      verify_one(request, sampling, arguments.seeds[index], arguments.positions[index], *scratch);
    }
  }
}

}  // namespace spec
