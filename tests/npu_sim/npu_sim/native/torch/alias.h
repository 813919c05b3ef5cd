// NPU tensors seen as CPU tensors: a device's memory is host memory, so nothing is copied.
#pragma once

#include <ATen/ATen.h>
#include <optional>
#include <utility>
#include <vector>

namespace npu_sim {

bool is_npu(const at::Tensor& tensor);

// A CPU tensor on the memory of an NPU tensor. It does not keep the memory alive.
at::Tensor cpu_alias(const at::Tensor& tensor);

// The first byte that a tensor reaches and how many bytes lie from there to its last.
std::pair<void*, size_t> span(const at::Tensor& tensor);

// The tensors of one call of an op, as the device knows them and as the CPU does.
class Aliases {
 public:
  // The CPU's tensor for an argument: an alias of an NPU tensor, any other as it is.
  at::Tensor to_cpu(const at::Tensor& tensor);

  // The device's tensor for a result: the argument that it is, or a new one with its values.
  at::Tensor to_npu(const at::Tensor& result) const;

  // Whether a result is an argument of the call.
  bool is_argument(const at::Tensor& result) const;

  // Give arguments the sizes that the op gave their aliases (`out=` tensors are resized).
  // Returns whether there were such.
  bool resize_arguments();

  // The arguments that lie on the device.
  std::vector<at::Tensor> device_tensors() const;

  // New tensors go to this device. Without one they stay on the CPU.
  std::optional<c10::Device> device;

 private:
  struct Pair {
    at::Tensor own, cpu;
  };
  std::vector<Pair> pairs_;
};

}  // namespace npu_sim
