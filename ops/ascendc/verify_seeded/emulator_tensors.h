// Tells the emulator of the tensors that calls of verify_seeded and verify_tree have.
#pragma once
#include "../common/emulator_host.h"

namespace spec {

template <typename Call>
void add_seeded_tensors(emulator::Kernel& kernel, const Call& call) {
  const int64_t size = size_of(call.dtype), reqs = call.num_reqs;
  const auto add = [&](const char* name, const void* pointer, int64_t bytes) {
    if (pointer != nullptr) kernel.input(name, pointer, bytes);
  };
  kernel
      .input("logits", call.logits,
             span(call.num_rows, call.vocab_size, call.row_stride, size))
      .rows(call.vocab_size * size, call.row_stride * size);
  add("draft_token_ids", call.drafts, (call.num_rows - reqs) * 4);
  add("cu_num_draft_tokens", call.ends, reqs * 4);
  add("temperature", call.temperature, reqs * 4);
  add("top_k", call.top_k, reqs * 4);
  add("top_p", call.top_p, reqs * 4);
  add("min_p", call.min_p, reqs * 4);
  add("seeds", call.seeds, reqs * 8);
  add("positions", call.positions, reqs * 8);
  kernel.output("output_token_ids", call.tokens, reqs * (call.max_draft_len + 1) * 4);
  kernel.output("num_output_tokens", call.counts, reqs * 4);
}

}  // namespace spec
