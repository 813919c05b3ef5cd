// How many bytes a call of an op reads and writes, by its schema and its tensors' sizes.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "../runtime/counters.h"

namespace npu_sim {

// The call's traffic without what it returns newly. `arguments` as the op was called.
Traffic argument_traffic(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments);

// Whether an op changes an argument. torch_npu's schemas do not mark all that are named "out".
bool changes(const c10::Argument& argument);

// Bytes that a tensor occupies: elements that share memory by a stride of 0 count once.
int64_t tensor_bytes(const at::Tensor& tensor);

// Add what a call returned newly, `bytes` in all; an op that picks rows of a tensor reads no more
// of it than it returns.
void add_results(Traffic& traffic, const c10::FunctionSchema& schema,
                 const torch::jit::Stack& arguments, int64_t bytes);

}  // namespace npu_sim
