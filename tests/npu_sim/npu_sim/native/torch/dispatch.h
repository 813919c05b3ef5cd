// Ops on NPU tensors, run by the CPU's kernels (or references registered as such).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <string>
#include <vector>

#include "alias.h"

namespace npu_sim {

// The kernel that runs an op on the CPU's view of its tensors, counts it and records it.
void launch(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// The same for an op that does nothing on the device: neither counted nor recorded.
void run_on_host(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                 torch::jit::Stack* stack);

// The kernel of an op that nobody can run here: an error that names it.
void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// The kernel of an op that torch_npu has none for: it copies what the op takes to the host, which
// waits for it, runs the CPU's kernel and copies back. Throws in a capture, which cannot contain it.
void fall_back(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// Launch an op on the current stream; throws where that may not be.
void check_launch(const std::string& name);

// The host waits for the device because of an op, which counts; throws where it may not.
void check_wait(const char* why, const std::string& name);

// Register `launch`, or `refuse` where there is nothing to run, for all ops of "aten" that the
// NPU needs kernels for, except those named in `own`, which stay torch_npu's.
void install_aten(const std::vector<std::string>& own);

// Register the ops of another namespace: those named in `references` have a kernel for the CPU
// and get `launch` (or `run_on_host` if in `host_only`), all others `refuse`, except `own`.
void install_namespace(const std::string& name, const std::vector<std::string>& references,
                       const std::vector<std::string>& host_only,
                       const std::vector<std::string>& own);

}  // namespace npu_sim
