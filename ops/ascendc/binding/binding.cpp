// Registers the kernels as PyTorch ops for NPU tensors. Arguments have been checked in Python.
//
// An ACL graph can capture a call: it waits neither for the device nor for torch_npu's task queue,
// reads no device memory on the host, and takes its workspace from PyTorch's allocator, in the
// order of the current stream.
#include <ATen/ATen.h>
#include <acl/acl.h>
#include <torch/library.h>
#include <torch_npu/csrc/core/npu/NPUGuard.h>
#include <torch_npu/csrc/core/npu/NPUStream.h>
#include <torch_npu/csrc/framework/OpCommand.h>

#include <optional>
#include <tuple>

#include "../grammar_mask/launch.h"
#include "../grammar_mask/plan.h"
#include "../verify_greedy/launch.h"
#include "../verify_greedy/plan.h"
#include "../verify_sample/launch.h"
#include "../verify_sample/plan.h"
#include "../verify_seeded/launch.h"
#include "../verify_seeded/plan.h"
#include "../verify_tree/launch.h"
#include "../verify_tree/plan.h"

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Outputs = std::tuple<Tensor, Tensor>;

// All blocks of a launch run at once: they wait for each other.
uint32_t num_cores(const Tensor& tensor) {
  int64_t count = 0;
  const int device = tensor.device().index();
  TORCH_CHECK(aclGetDeviceCapability(device, ACL_DEVICE_INFO_VECTOR_CORE_NUM, &count) ==
                  ACL_SUCCESS,
              "cannot tell the number of vector cores of NPU ", device);
  return static_cast<uint32_t>(std::min<int64_t>(count, spec::kMaxCores));
}

int32_t dtype_of(const Tensor& logits) {
  const auto type = logits.scalar_type();
  return static_cast<int32_t>(type == at::kFloat      ? spec::Dtype::kFloat32
                              : type == at::kBFloat16 ? spec::Dtype::kBfloat16
                                                      : spec::Dtype::kFloat16);
}

template <typename Call>
spec::Tiling planned(const Call& call, const Tensor& logits) {
  spec::Tiling tiling;
  const std::string problem = spec::plan(call, num_cores(logits), spec::Wish{}, tiling);
  TORCH_CHECK_VALUE(problem.empty(), problem);
  return tiling;
}

template <typename T>
const T* pointer(const OptionalTensor& tensor) {
  return tensor ? tensor->const_data_ptr<T>() : nullptr;
}

// Fields that all verifications have.
template <typename Call>
Outputs fill(Call& call, const Tensor& logits, const Tensor& drafts, const Tensor& ends,
             int64_t max_draft_len) {
  const Tensor tokens = at::empty({ends.size(0), max_draft_len + 1}, ends.options());
  const Tensor counts = at::empty({ends.size(0)}, ends.options());
  call.logits = logits.const_data_ptr();
  call.drafts = drafts.const_data_ptr<int32_t>();
  call.ends = ends.const_data_ptr<int32_t>();
  call.tokens = tokens.data_ptr<int32_t>();
  call.counts = counts.data_ptr<int32_t>();
  call.num_reqs = ends.size(0);
  call.num_rows = logits.size(0);
  call.vocab_size = logits.size(1);
  call.row_stride = logits.stride(0);
  call.max_draft_len = max_draft_len;
  call.dtype = dtype_of(logits);
  return {tokens, counts};
}

// Puts the launch into torch_npu's task queue. torch_npu raises the code that the launch returns
// and names the op: in this call, or, where the queue has a thread of its own (the default), in the
// next one that uses the queue. A copy to the host uses it, so results of a launch that failed are
// never read.
template <typename Call>
void enqueue(const char* name, const Call& call, const Tensor& logits) {
  const spec::Tiling tiling = planned(call, logits);
  const Tensor workspace = at::empty({static_cast<int64_t>(tiling.workspace)},
                                     logits.options().dtype(at::kByte));
  void* const space = workspace.data_ptr();
  // stream(true) would wait until the queue is empty.
  void* const stream = c10_npu::getCurrentNPUStream().stream(false);
  at_npu::native::OpCommand command;
  command.Name(name);
  command.SetCustomHandler([call, tiling, space, stream]() -> int {
    return static_cast<int>(spec::launch(call, tiling, space, stream));
  });
  command.Run();
}

Outputs verify_greedy(const Tensor& logits, const Tensor& drafts, const Tensor& ends,
                      int64_t max_draft_len) {
  const c10_npu::NPUGuard guard(logits.device());
  spec_verify_greedy call{};
  const Outputs outputs = fill(call, logits, drafts, ends, max_draft_len);
  enqueue("spec_verify_greedy", call, logits);
  return outputs;
}

Outputs verify_sample(const Tensor& logits, const Tensor& drafts, const Tensor& ends,
                      int64_t max_draft_len, const Tensor& temperature, const OptionalTensor& top_k,
                      const OptionalTensor& top_p, const OptionalTensor& min_p,
                      const OptionalTensor& draft_probs, const Tensor& accept_uniform,
                      const Tensor& sample_uniform, bool block_rule) {
  const c10_npu::NPUGuard guard(logits.device());
  spec_verify_sample call{};
  const Outputs outputs = fill(call, logits, drafts, ends, max_draft_len);
  call.temperature = temperature.const_data_ptr<float>();
  call.top_k = pointer<int32_t>(top_k);
  call.top_p = pointer<float>(top_p);
  call.min_p = pointer<float>(min_p);
  call.draft_probs = pointer<float>(draft_probs);
  call.draft_stride = draft_probs ? draft_probs->stride(0) : 0;
  call.accept_uniform = accept_uniform.const_data_ptr<double>();
  call.sample_uniform = sample_uniform.const_data_ptr<double>();
  call.block_rule = block_rule ? 1 : 0;
  enqueue("spec_verify_sample", call, logits);
  return outputs;
}

Outputs verify_seeded(const Tensor& logits, const Tensor& drafts, const Tensor& ends,
                      int64_t max_draft_len, const Tensor& temperature, const OptionalTensor& top_k,
                      const OptionalTensor& top_p, const OptionalTensor& min_p, const Tensor& seeds,
                      const Tensor& positions) {
  const c10_npu::NPUGuard guard(logits.device());
  spec_verify_seeded call{};
  const Outputs outputs = fill(call, logits, drafts, ends, max_draft_len);
  call.temperature = temperature.const_data_ptr<float>();
  call.top_k = pointer<int32_t>(top_k);
  call.top_p = pointer<float>(top_p);
  call.min_p = pointer<float>(min_p);
  call.seeds = seeds.const_data_ptr<int64_t>();
  call.positions = positions.const_data_ptr<int64_t>();
  enqueue("spec_verify_seeded", call, logits);
  return outputs;
}

std::tuple<Tensor, Tensor, Tensor> verify_tree(
    const Tensor& logits, const Tensor& drafts, const Tensor& ends, int64_t max_draft_len,
    const Tensor& parents, const Tensor& temperature, const OptionalTensor& top_k,
    const OptionalTensor& top_p, const OptionalTensor& min_p, const Tensor& seeds,
    const Tensor& positions) {
  const c10_npu::NPUGuard guard(logits.device());
  spec_verify_tree call{};
  const auto [tokens, counts] = fill(call, logits, drafts, ends, max_draft_len);
  const Tensor paths = at::empty_like(tokens);
  call.parents = parents.const_data_ptr<int32_t>();
  call.temperature = temperature.const_data_ptr<float>();
  call.top_k = pointer<int32_t>(top_k);
  call.top_p = pointer<float>(top_p);
  call.min_p = pointer<float>(min_p);
  call.seeds = seeds.const_data_ptr<int64_t>();
  call.positions = positions.const_data_ptr<int64_t>();
  call.paths = paths.data_ptr<int32_t>();
  enqueue("spec_verify_tree", call, logits);
  return {tokens, counts, paths};
}

void grammar_mask(const Tensor& logits, const Tensor& bitmask, const Tensor& row_indices) {
  const c10_npu::NPUGuard guard(logits.device());
  spec_grammar_mask call{};
  call.logits = logits.data_ptr();
  call.bitmask = bitmask.const_data_ptr<int32_t>();
  call.row_indices = row_indices.const_data_ptr<int32_t>();
  call.num_masked = bitmask.size(0);
  call.num_words = bitmask.size(1);
  call.num_rows = logits.size(0);
  call.vocab_size = logits.size(1);
  call.row_stride = logits.stride(0);
  call.dtype = dtype_of(logits);
  enqueue("spec_grammar_mask", call, logits);
}

}  // namespace

TORCH_LIBRARY(vllm_ascend_spec_npu, m) {
  m.def(
      "verify_greedy(Tensor logits, Tensor drafts, Tensor ends, int max_draft_len)"
      " -> (Tensor, Tensor)");
  m.def(
      "verify_sample(Tensor logits, Tensor drafts, Tensor ends, int max_draft_len, *,"
      " Tensor temperature, Tensor? top_k, Tensor? top_p, Tensor? min_p, Tensor? draft_probs,"
      " Tensor accept_uniform, Tensor sample_uniform, bool block_rule) -> (Tensor, Tensor)");
  m.def(
      "verify_seeded(Tensor logits, Tensor drafts, Tensor ends, int max_draft_len, *,"
      " Tensor temperature, Tensor? top_k, Tensor? top_p, Tensor? min_p, Tensor seeds,"
      " Tensor positions) -> (Tensor, Tensor)");
  m.def(
      "verify_tree(Tensor logits, Tensor drafts, Tensor ends, int max_draft_len, *,"
      " Tensor parents, Tensor temperature, Tensor? top_k, Tensor? top_p, Tensor? min_p,"
      " Tensor seeds, Tensor positions) -> (Tensor, Tensor, Tensor)");
  m.def("grammar_mask(Tensor(a!) logits, Tensor bitmask, Tensor row_indices) -> ()");
}

TORCH_LIBRARY_IMPL(vllm_ascend_spec_npu, PrivateUse1, m) {
  m.impl("verify_greedy", &verify_greedy);
  m.impl("verify_sample", &verify_sample);
  m.impl("verify_seeded", &verify_seeded);
  m.impl("verify_tree", &verify_tree);
  m.impl("grammar_mask", &grammar_mask);
}
