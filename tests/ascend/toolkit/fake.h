// What the launchers of the fake of CANN's toolkit do. They run the kernel under the emulator,
// unless VLLM_ASCEND_SPEC_TEST_LAUNCH says otherwise: a number is the error code that a launch fails
// with; "unregistered" runs nothing and returns 0, as CANN's do where the kernels' binary was not
// registered with the device.
#pragma once
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/emulator_host.h"
#include "grammar_mask/call.h"
#include "verify_greedy/call.h"
#include "verify_sample/arguments.h"
#include "verify_sample/call.h"
#include "verify_seeded/call.h"
#include "verify_tree/call.h"

namespace fake {

constexpr uint32_t kBroken = 999;  // the kernel broke a rule of the hardware

inline std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Calls spec_run_<op> of the folder that VLLM_ASCEND_SPEC_TEST_EMULATOR names.
template <typename Call>
uint32_t run(const char* op, const Call& call, uint32_t cores, uint32_t tile, spec::Mode mode) {
  const std::string wish = setting("VLLM_ASCEND_SPEC_TEST_LAUNCH");
  if (wish == "unregistered") return 0;
  if (!wish.empty()) return static_cast<uint32_t>(std::stoul(wish));
  const std::string library = setting("VLLM_ASCEND_SPEC_TEST_EMULATOR") + "/" + op + ".so";
  void* const handle = dlopen(library.c_str(), RTLD_NOW);
  const auto kernel = reinterpret_cast<int (*)(const spec_launch*, const Call*)>(
      dlsym(handle, ("spec_run_" + std::string(op)).c_str()));
  emulator_options options{};
  options.checks = 1;
  emulator_error error{};
  char message[512] = "";
  const spec_launch launch{static_cast<int32_t>(cores), static_cast<int32_t>(mode), tile,
                           options, nullptr, &error, message, sizeof message};
  if (kernel(&launch, &call) == spec::kDone) return 0;
  std::fprintf(stderr, "%s: %s%s\n", op, message, error.message);
  return kBroken;
}

inline spec::Mode mode_of(bool by_request) {
  return by_request ? spec::Mode::kByRequest : spec::Mode::kSplit;
}

template <typename T>
T* as(void* pointer) {
  return static_cast<T*>(pointer);
}

// verify_greedy's kernels.
inline uint32_t launch(int32_t dtype, uint32_t cores, void* logits, void* drafts, void* ends,
                       void* tokens, void* counts, void*, uint32_t num_reqs, uint32_t num_rows,
                       uint32_t vocab_size, uint32_t max_draft_len, uint64_t row_stride,
                       uint32_t tile, uint32_t by_request) {
  spec_verify_greedy call{};
  call.logits = logits;
  call.drafts = as<int32_t>(drafts);
  call.ends = as<int32_t>(ends);
  call.tokens = as<int32_t>(tokens);
  call.counts = as<int32_t>(counts);
  call.num_reqs = num_reqs;
  call.num_rows = num_rows;
  call.vocab_size = vocab_size;
  call.row_stride = static_cast<int64_t>(row_stride);
  call.max_draft_len = max_draft_len;
  call.dtype = dtype;
  return run("verify_greedy", call, cores, tile, mode_of(by_request != 0));
}

// verify_sample's.
inline uint32_t launch(int32_t dtype, uint32_t cores, void* logits, void* drafts, void* ends,
                       void* temperature, void* top_k, void* top_p, void* min_p, void* draft_probs,
                       void* accept_uniform, void* sample_uniform, void* tokens, void* counts,
                       void*, uint32_t num_reqs, uint32_t num_rows, uint32_t vocab_size,
                       uint32_t max_draft_len, uint64_t row_stride, uint64_t draft_stride,
                       uint32_t tile, uint32_t flags) {
  spec_verify_sample call{};
  call.logits = logits;
  call.drafts = as<int32_t>(drafts);
  call.ends = as<int32_t>(ends);
  call.temperature = as<float>(temperature);
  call.top_k = as<int32_t>(top_k);
  call.top_p = as<float>(top_p);
  call.min_p = as<float>(min_p);
  call.draft_probs = as<float>(draft_probs);
  call.accept_uniform = as<double>(accept_uniform);
  call.sample_uniform = as<double>(sample_uniform);
  call.tokens = as<int32_t>(tokens);
  call.counts = as<int32_t>(counts);
  call.num_reqs = num_reqs;
  call.num_rows = num_rows;
  call.vocab_size = vocab_size;
  call.row_stride = static_cast<int64_t>(row_stride);
  call.draft_stride = static_cast<int64_t>(draft_stride);
  call.max_draft_len = max_draft_len;
  call.dtype = dtype;
  call.block_rule = (flags & spec::kBlockRule) != 0;
  return run("verify_sample", call, cores, tile, mode_of((flags & spec::kByRequest) != 0));
}

// verify_seeded's.
inline uint32_t launch(int32_t dtype, uint32_t cores, void* logits, void* drafts, void* ends,
                       void* temperature, void* top_k, void* top_p, void* min_p, void* seeds,
                       void* positions, void* tokens, void* counts, void*, uint32_t num_reqs,
                       uint32_t num_rows, uint32_t vocab_size, uint32_t max_draft_len,
                       uint64_t row_stride, uint32_t tile, uint32_t flags) {
  spec_verify_seeded call{};
  call.logits = logits;
  call.drafts = as<int32_t>(drafts);
  call.ends = as<int32_t>(ends);
  call.temperature = as<float>(temperature);
  call.top_k = as<int32_t>(top_k);
  call.top_p = as<float>(top_p);
  call.min_p = as<float>(min_p);
  call.seeds = as<int64_t>(seeds);
  call.positions = as<int64_t>(positions);
  call.tokens = as<int32_t>(tokens);
  call.counts = as<int32_t>(counts);
  call.num_reqs = num_reqs;
  call.num_rows = num_rows;
  call.vocab_size = vocab_size;
  call.row_stride = static_cast<int64_t>(row_stride);
  call.max_draft_len = max_draft_len;
  call.dtype = dtype;
  return run("verify_seeded", call, cores, tile, mode_of((flags & spec::kByRequest) != 0));
}

// verify_tree's.
inline uint32_t launch(int32_t dtype, uint32_t cores, void* logits, void* drafts, void* ends,
                       void* parents, void* temperature, void* top_k, void* top_p, void* min_p,
                       void* seeds, void* positions, void* tokens, void* counts, void* paths,
                       void*, uint32_t num_reqs, uint32_t num_rows, uint32_t vocab_size,
                       uint32_t max_draft_len, uint64_t row_stride, uint32_t tile,
                       uint32_t flags) {
  spec_verify_tree call{};
  call.logits = logits;
  call.drafts = as<int32_t>(drafts);
  call.ends = as<int32_t>(ends);
  call.parents = as<int32_t>(parents);
  call.temperature = as<float>(temperature);
  call.top_k = as<int32_t>(top_k);
  call.top_p = as<float>(top_p);
  call.min_p = as<float>(min_p);
  call.seeds = as<int64_t>(seeds);
  call.positions = as<int64_t>(positions);
  call.tokens = as<int32_t>(tokens);
  call.counts = as<int32_t>(counts);
  call.paths = as<int32_t>(paths);
  call.num_reqs = num_reqs;
  call.num_rows = num_rows;
  call.vocab_size = vocab_size;
  call.row_stride = static_cast<int64_t>(row_stride);
  call.max_draft_len = max_draft_len;
  call.dtype = dtype;
  return run("verify_tree", call, cores, tile, mode_of((flags & spec::kByRequest) != 0));
}

// grammar_mask's. The kernel is not told how many rows there are: the bitmask's last row may be the
// last one.
inline uint32_t launch(int32_t dtype, uint32_t cores, void* logits, void* bitmask, void* row_indices,
                       uint32_t num_masked, uint32_t num_words, uint32_t vocab_size,
                       uint64_t row_stride, uint32_t tile) {
  spec_grammar_mask call{};
  call.logits = logits;
  call.bitmask = as<int32_t>(bitmask);
  call.row_indices = as<int32_t>(row_indices);
  call.num_masked = num_masked;
  call.num_words = num_words;
  for (uint32_t i = 0; i < num_masked; ++i) {
    call.num_rows = std::max<int64_t>(call.num_rows, call.row_indices[i] + 1);
  }
  call.vocab_size = vocab_size;
  call.row_stride = static_cast<int64_t>(row_stride);
  call.dtype = dtype;
  return run("grammar_mask", call, cores, tile, spec::Mode::kAuto);
}

}  // namespace fake
