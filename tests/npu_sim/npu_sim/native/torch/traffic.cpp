#include "traffic.h"

#include <algorithm>
#include <set>
#include <string>

namespace npu_sim {

namespace {

// In-place ops that do not read what they overwrite.
const std::set<std::string> kOverwriting = {
    "aten::copy_",        "aten::fill_",      "aten::zero_",   "aten::uniform_",
    "aten::exponential_", "aten::normal_",    "aten::random_", "aten::bernoulli_",
    "aten::cauchy_",      "aten::geometric_", "aten::log_normal_"};
// Ops that read a part of their first argument, as large as what they return.
const std::set<std::string> kGathering = {"aten::index_select", "aten::embedding", "aten::gather",
                                          "aten::index", "aten::take"};
// In-place ops that write a part of their first argument, as large as the largest other one.
const std::set<std::string> kScattering = {
    "aten::index_put_",  "aten::_index_put_impl_", "aten::scatter_",   "aten::scatter_add_",
    "aten::index_copy_", "aten::index_fill_",      "aten::index_add_", "aten::scatter_reduce_"};

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  std::vector<at::Tensor> tensors;
  if (value.isOptionalTensorList())
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      if (tensor) tensors.push_back(*tensor);
  return tensors;
}

int64_t bytes_of(const c10::IValue& value) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors_of(value)) bytes += tensor_bytes(tensor);
  return bytes;
}

}  // namespace

bool changes(const c10::Argument& argument) {
  return (argument.alias_info() && argument.alias_info()->isWrite()) || argument.name() == "out";
}

int64_t tensor_bytes(const at::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  int64_t elements = 1;
  for (int64_t dim = 0; dim < tensor.dim(); dim++)
    if (tensor.stride(dim) != 0 || tensor.size(dim) == 0) elements *= tensor.size(dim);
  return elements * static_cast<int64_t>(tensor.element_size());
}

Traffic argument_traffic(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments) {
  const bool scatters = kScattering.count(schema.name());
  int64_t largest_other = 0;
  for (size_t i = 1; i < arguments.size(); i++)
    largest_other = std::max(largest_other, bytes_of(arguments[i]));
  Traffic traffic;
  for (size_t i = 0; i < arguments.size(); i++) {
    const c10::Argument& argument = schema.arguments()[i];
    int64_t bytes = bytes_of(arguments[i]);
    if (i == 0 && scatters) bytes = std::min(bytes, largest_other);
    const bool writes = changes(argument);
    const bool is_out = argument.is_out() || argument.name() == "out";
    const bool overwrites = writes && (is_out || kOverwriting.count(schema.name()) || scatters);
    if (writes) traffic.written += bytes;
    if (!overwrites) traffic.read += bytes;
  }
  return traffic;
}

void add_results(Traffic& traffic, const c10::FunctionSchema& schema,
                 const torch::jit::Stack& arguments, int64_t bytes) {
  traffic.written += bytes;
  if (kGathering.count(schema.name()) && !arguments.empty())
    traffic.read -= std::max<int64_t>(0, bytes_of(arguments[0]) - bytes);
}

}  // namespace npu_sim
