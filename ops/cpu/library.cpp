// The ops as PyTorch sees them, through its stable ABI: one binary for torch 2.10 and later.
//
// Arguments were checked in Python. Results are written to tensors that the caller allocated.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <string>

#include "grammar_mask.h"
#include "verify.h"

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using OptionalTensor = std::optional<Tensor>;

template <class T>
const T* data(const Tensor& tensor) {
  return static_cast<const T*>(tensor.data_ptr());
}

template <class T>
const T* data(const OptionalTensor& tensor) {
  return tensor ? data<T>(*tensor) : nullptr;
}

spec::DType dtype_of(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::BFloat16:
      return spec::DType::kBFloat16;
    case ScalarType::Half:
      return spec::DType::kFloat16;
    default:
      return spec::DType::kFloat32;
  }
}

spec::Logits logits_of(const Tensor& tensor) {
  return {tensor.data_ptr(), dtype_of(tensor), tensor.stride(0), static_cast<int>(tensor.size(1))};
}

// Requests are independent, and one is always handled by one thread: the result does not depend on
// how many there are.
template <class Work>
void for_each_range(int64_t count, const Work& work) {
  if (count == 1) {
    work(0, 1);
  } else if (count > 1) {
    torch::stable::parallel_for(0, count, 1, work);
  }
}

void verify_greedy(Tensor token_ids, Tensor counts, Tensor logits, Tensor draft_token_ids,
                   Tensor cu_num_draft_tokens, int64_t max_draft_len) {
  const spec::Logits rows = logits_of(logits);
  const spec::Drafts drafts{data<int32_t>(draft_token_ids), data<int32_t>(cu_num_draft_tokens),
                            max_draft_len};
  const spec::Outputs outputs{static_cast<int32_t*>(token_ids.data_ptr()),
                              static_cast<int32_t*>(counts.data_ptr())};
  for_each_range(counts.size(0), [&](int64_t begin, int64_t end) {
    spec::verify_greedy(rows, drafts, outputs, begin, end);
  });
}

void verify_sample(Tensor token_ids, Tensor counts, Tensor logits, Tensor draft_token_ids,
                   Tensor cu_num_draft_tokens, int64_t max_draft_len, Tensor temperature,
                   OptionalTensor top_k, OptionalTensor top_p, OptionalTensor min_p,
                   OptionalTensor draft_probs, Tensor accept_uniform, Tensor sample_uniform,
                   int64_t rule) {
  const spec::Logits rows = logits_of(logits);
  const spec::Drafts drafts{data<int32_t>(draft_token_ids), data<int32_t>(cu_num_draft_tokens),
                            max_draft_len};
  const spec::SampleArguments arguments{{data<float>(temperature), data<int32_t>(top_k),
                                         data<float>(top_p), data<float>(min_p)},
                                        data<float>(draft_probs),
                                        draft_probs ? draft_probs->stride(0) : 0,
                                        data<double>(accept_uniform),
                                        data<double>(sample_uniform)};
  const spec::Outputs outputs{static_cast<int32_t*>(token_ids.data_ptr()),
                              static_cast<int32_t*>(counts.data_ptr())};
  for_each_range(counts.size(0), [&](int64_t begin, int64_t end) {
    spec::verify_sample(rows, drafts, arguments, static_cast<spec::Rule>(rule), outputs, begin,
                        end);
  });
}

void verify_seeded(Tensor token_ids, Tensor counts, Tensor logits, Tensor draft_token_ids,
                   Tensor cu_num_draft_tokens, int64_t max_draft_len, Tensor temperature,
                   OptionalTensor top_k, OptionalTensor top_p, OptionalTensor min_p, Tensor seeds,
                   Tensor positions) {
  const spec::Logits rows = logits_of(logits);
  const spec::Drafts drafts{data<int32_t>(draft_token_ids), data<int32_t>(cu_num_draft_tokens),
                            max_draft_len};
  const spec::SeededArguments arguments{{data<float>(temperature), data<int32_t>(top_k),
                                         data<float>(top_p), data<float>(min_p)},
                                        data<int64_t>(seeds),
                                        data<int64_t>(positions)};
  const spec::Outputs outputs{static_cast<int32_t*>(token_ids.data_ptr()),
                              static_cast<int32_t*>(counts.data_ptr())};
  for_each_range(counts.size(0), [&](int64_t begin, int64_t end) {
    spec::verify_seeded(rows, drafts, arguments, outputs, begin, end);
  });
}

void verify_tree(Tensor token_ids, Tensor counts, Tensor paths, Tensor logits,
                 Tensor draft_token_ids, Tensor cu_num_draft_tokens, int64_t max_draft_len,
                 Tensor parents, Tensor temperature, OptionalTensor top_k, OptionalTensor top_p,
                 OptionalTensor min_p, Tensor seeds, Tensor positions) {
  const spec::Logits rows = logits_of(logits);
  const spec::Drafts drafts{data<int32_t>(draft_token_ids), data<int32_t>(cu_num_draft_tokens),
                            max_draft_len};
  const spec::SeededArguments arguments{{data<float>(temperature), data<int32_t>(top_k),
                                         data<float>(top_p), data<float>(min_p)},
                                        data<int64_t>(seeds),
                                        data<int64_t>(positions)};
  const spec::Outputs outputs{static_cast<int32_t*>(token_ids.data_ptr()),
                              static_cast<int32_t*>(counts.data_ptr())};
  const auto all_paths = static_cast<int32_t*>(paths.data_ptr());
  for_each_range(counts.size(0), [&](int64_t begin, int64_t end) {
    spec::verify_tree(rows, drafts, data<int32_t>(parents), arguments, outputs, all_paths, begin,
                      end);
  });
}

void grammar_mask(Tensor logits, Tensor bitmask, Tensor row_indices) {
  const spec::Masks masks{data<int32_t>(bitmask), bitmask.size(1), data<int32_t>(row_indices)};
  for_each_range(row_indices.size(0), [&](int64_t begin, int64_t end) {
    spec::grammar_mask(logits.data_ptr(), dtype_of(logits), logits.stride(0),
                       static_cast<int>(logits.size(1)), masks, begin, end);
  });
}

}  // namespace

// Which build of the arithmetic this machine runs; read through ctypes.
extern "C" __attribute__((visibility("default"))) const char* vllm_ascend_spec_cpu_isa() {
  return spec::block_math().name;
}

STABLE_TORCH_LIBRARY(vllm_ascend_spec_cpu, library) {
  library.def(
      "verify_greedy(Tensor(a!) token_ids, Tensor(b!) counts, Tensor logits, "
      "Tensor draft_token_ids, Tensor cu_num_draft_tokens, int max_draft_len) -> ()");
  library.def(
      "verify_sample(Tensor(a!) token_ids, Tensor(b!) counts, Tensor logits, "
      "Tensor draft_token_ids, Tensor cu_num_draft_tokens, int max_draft_len, "
      "Tensor temperature, Tensor? top_k, Tensor? top_p, Tensor? min_p, Tensor? draft_probs, "
      "Tensor accept_uniform, Tensor sample_uniform, int rule) -> ()");
  library.def(
      "verify_seeded(Tensor(a!) token_ids, Tensor(b!) counts, Tensor logits, "
      "Tensor draft_token_ids, Tensor cu_num_draft_tokens, int max_draft_len, "
      "Tensor temperature, Tensor? top_k, Tensor? top_p, Tensor? min_p, Tensor seeds, "
      "Tensor positions) -> ()");
  library.def(
      "verify_tree(Tensor(a!) token_ids, Tensor(b!) counts, Tensor(c!) paths, Tensor logits, "
      "Tensor draft_token_ids, Tensor cu_num_draft_tokens, int max_draft_len, Tensor parents, "
      "Tensor temperature, Tensor? top_k, Tensor? top_p, Tensor? min_p, Tensor seeds, "
      "Tensor positions) -> ()");
  library.def("grammar_mask(Tensor(a!) logits, Tensor bitmask, Tensor row_indices) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(vllm_ascend_spec_cpu, CPU, library) {
  library.impl("verify_greedy", TORCH_BOX(&verify_greedy));
  library.impl("verify_sample", TORCH_BOX(&verify_sample));
  library.impl("verify_seeded", TORCH_BOX(&verify_seeded));
  library.impl("verify_tree", TORCH_BOX(&verify_tree));
  library.impl("grammar_mask", TORCH_BOX(&grammar_mask));
}
