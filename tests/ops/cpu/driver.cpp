// Runs cases from standard input on ops/cpu without PyTorch, so that sanitizers, other compilers
// and other processors can be tried; tests/ops/cpu/driver.py writes the cases and reads the
// results. Every array lies in memory of its exact size. Ends by telling, on standard error, the
// most memory that one call held besides its arguments.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>

#include "grammar_mask.h"
#include "verify.h"

static size_t held = 0;
static size_t most_held = 0;

void* operator new(size_t size) {
  void* memory = std::malloc(size);
  if (!memory) throw std::bad_alloc();
  held += malloc_usable_size(memory);
  if (held > most_held) most_held = held;
  return memory;
}

void operator delete(void* memory) noexcept {
  held -= malloc_usable_size(memory);
  std::free(memory);
}

void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

template <class T>
using Array = std::unique_ptr<T[], Free>;

// An array of `count` items; null if there are none, as in PyTorch.
template <class T>
Array<T> read(int64_t count) {
  if (count == 0) return nullptr;
  Array<T> items(static_cast<T*>(std::malloc(count * sizeof(T))));
  const size_t wanted = static_cast<size_t>(count);
  if (!items || std::fread(items.get(), sizeof(T), wanted, stdin) != wanted) std::abort();
  return items;
}

template <class T>
void write(const T* items, int64_t count) {
  std::fwrite(items, sizeof(T), static_cast<size_t>(count), stdout);
}

// As driver.py writes them.
struct Header {
  int64_t op, dtype, num_rows, vocab, row_stride;
  int64_t num_drafts, num_reqs, max_draft_len, rule;
  int64_t has_top_k, has_top_p, has_min_p, draft_probs_stride;
  int64_t num_masked, num_words;
};

enum Op : int64_t { kGreedy, kSample, kMask, kSeeded, kTree };

size_t most_in_a_call = 0;

template <class Call>
void measure(Call call) {
  const size_t before = held;
  most_held = held;
  call();
  if (most_held - before > most_in_a_call) most_in_a_call = most_held - before;
}

int64_t size_of_rows(int64_t num_rows, int64_t stride, int64_t width) {
  return num_rows ? (num_rows - 1) * stride + width : 0;
}

void run_mask(const Header& h, char* logits, int64_t num_bytes) {
  const auto words = read<int32_t>(h.num_masked * h.num_words);
  const auto rows = read<int32_t>(h.num_masked);
  const spec::Masks masks{words.get(), h.num_words, rows.get()};
  measure([&] {
    spec::grammar_mask(logits, static_cast<spec::DType>(h.dtype), h.row_stride,
                       static_cast<int>(h.vocab), masks, 0, h.num_masked);
  });
  write(logits, num_bytes);
}

void run_verification(const Header& h, const char* data) {
  const spec::Logits logits{data, static_cast<spec::DType>(h.dtype), h.row_stride,
                            static_cast<int>(h.vocab)};
  const auto token_ids = read<int32_t>(h.num_drafts);
  const auto ends = read<int32_t>(h.num_reqs);
  const auto temperature = read<float>(h.num_reqs);
  const auto top_k = read<int32_t>(h.has_top_k * h.num_reqs);
  const auto top_p = read<float>(h.has_top_p * h.num_reqs);
  const auto min_p = read<float>(h.has_min_p * h.num_reqs);
  const int64_t num_probs_rows = h.draft_probs_stride ? h.num_drafts : 0;
  const auto draft_probs =
      read<float>(size_of_rows(num_probs_rows, h.draft_probs_stride, h.vocab));
  const bool has_tree = h.op == kTree, has_seeds = h.op == kSeeded || has_tree;
  const auto accept = read<double>(has_seeds ? 0 : h.num_drafts);
  const auto sample = read<double>(has_seeds ? 0 : h.num_reqs);
  const auto seeds = read<int64_t>(has_seeds ? h.num_reqs : 0);
  const auto positions = read<int64_t>(has_seeds ? h.num_reqs : 0);
  const auto parents = read<int32_t>(has_tree ? h.num_drafts : 0);

  const int64_t num_tokens = h.num_reqs * (h.max_draft_len + 1);
  const Array<int32_t> tokens(static_cast<int32_t*>(std::malloc(num_tokens * 4)));
  const int64_t path_size = has_tree ? num_tokens : 0;
  const Array<int32_t> paths(static_cast<int32_t*>(std::malloc(path_size * 4)));
  const Array<int32_t> counts(static_cast<int32_t*>(std::malloc(h.num_reqs * 4)));
  const spec::Drafts drafts{token_ids.get(), ends.get(), h.max_draft_len};
  const spec::Outputs outputs{tokens.get(), counts.get()};
  const spec::SamplingParameters sampling{temperature.get(), top_k.get(), top_p.get(),
                                          min_p.get()};
  const spec::SampleArguments arguments{
      sampling, draft_probs.get(), h.draft_probs_stride, accept.get(), sample.get()};
  const spec::SeededArguments seeded{sampling, seeds.get(), positions.get()};
  measure([&] {
    if (h.op == kGreedy) {
      spec::verify_greedy(logits, drafts, outputs, 0, h.num_reqs);
    } else if (h.op == kSeeded) {
      spec::verify_seeded(logits, drafts, seeded, outputs, 0, h.num_reqs);
    } else if (has_tree) {
      spec::verify_tree(logits, drafts, parents.get(), seeded, outputs, paths.get(), 0,
                        h.num_reqs);
    } else {
      spec::verify_sample(logits, drafts, arguments, static_cast<spec::Rule>(h.rule), outputs, 0,
                          h.num_reqs);
    }
  });
  write(tokens.get(), num_tokens);
  write(counts.get(), h.num_reqs);
  write(paths.get(), path_size);
}

}  // namespace

int main() {
  Header h;
  while (std::fread(&h, sizeof h, 1, stdin) == 1) {
    const int64_t item_size = h.dtype == static_cast<int64_t>(spec::DType::kFloat32) ? 4 : 2;
    const int64_t num_bytes = size_of_rows(h.num_rows, h.row_stride, h.vocab) * item_size;
    const auto logits = read<char>(num_bytes);
    if (h.op == kMask) {
      run_mask(h, logits.get(), num_bytes);
    } else {
      run_verification(h, logits.get());
    }
  }
  std::fprintf(stderr, "%zu\n", most_in_a_call);
}
