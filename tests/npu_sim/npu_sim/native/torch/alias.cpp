#include "alias.h"

#include <c10/core/CPUAllocator.h>

namespace npu_sim {

bool is_npu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::kPrivateUse1;
}

at::Tensor cpu_alias(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  auto memory = c10::DataPtr(storage.mutable_data(), c10::Device(c10::kCPU));
  auto shared = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage.nbytes(), std::move(memory),
      c10::GetCPUAllocator(), /*resizable=*/true);
  auto alias = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(shared)), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sym_sizes(), tensor.sym_strides(),
                                                     tensor.sym_storage_offset());
  if (tensor.is_conj()) alias._set_conj(true);
  if (tensor.is_neg()) alias._set_neg(true);
  return alias;
}

std::pair<void*, size_t> span(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return {nullptr, 0};
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); dim++)
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  return {tensor.data_ptr(), (last + 1) * tensor.element_size()};
}

at::Tensor Aliases::to_cpu(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  for (const Pair& pair : pairs_)
    if (pair.own.is_same(tensor)) return pair.cpu;
  if (is_npu(tensor) && !device) device = tensor.device();
  pairs_.push_back({tensor, is_npu(tensor) ? cpu_alias(tensor) : tensor});
  return pairs_.back().cpu;
}

bool Aliases::is_argument(const at::Tensor& result) const {
  for (const Pair& pair : pairs_)
    if (pair.cpu.is_same(result)) return true;
  return false;
}

at::Tensor Aliases::to_npu(const at::Tensor& result) const {
  if (!result.defined()) return result;
  for (const Pair& pair : pairs_)
    if (pair.cpu.is_same(result)) return pair.own;
  if (!device) return result;
  const auto options = result.options().device(*device).pinned_memory(false);
  at::Tensor own = at::empty_strided(result.sizes(), result.strides(), options);
  cpu_alias(own).copy_(result);
  return own;
}

bool Aliases::resize_arguments() {
  bool any = false;
  for (Pair& pair : pairs_) {
    if (!is_npu(pair.own)) continue;
    const bool same = pair.cpu.sizes() == pair.own.sizes() &&
                      pair.cpu.strides() == pair.own.strides();
    const bool moved = pair.cpu.numel() > 0 &&
                       pair.cpu.storage().data() != pair.own.storage().data();
    if (same && !moved) continue;
    any = true;
    if (moved) pair.own.resize_(pair.cpu.sizes());
    pair.own.unsafeGetTensorImpl()->set_sizes_and_strides(
        pair.cpu.sym_sizes(), pair.cpu.sym_strides(), pair.cpu.sym_storage_offset());
    if (moved) cpu_alias(pair.own).copy_(pair.cpu);
  }
  return any;
}

std::vector<at::Tensor> Aliases::device_tensors() const {
  std::vector<at::Tensor> tensors;
  for (const Pair& pair : pairs_)
    if (is_npu(pair.own)) tensors.push_back(pair.own);
  return tensors;
}

}  // namespace npu_sim
