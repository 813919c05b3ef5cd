// Which kernel which op gets on the simulated NPU.
#include <memory>
#include <set>
#include <torch/library.h>

#include "dispatch.h"

namespace npu_sim {

namespace {

using c10::DispatchKey;
using c10::OperatorHandle;

using Names = std::set<std::string>;

std::vector<std::unique_ptr<torch::Library>>& libraries() {
  static std::vector<std::unique_ptr<torch::Library>> all;
  return all;
}

torch::Library& library(const std::string& name, DispatchKey key) {
  libraries().push_back(std::make_unique<torch::Library>(torch::Library::IMPL, name, key, __FILE__,
                                                         __LINE__));
  return *libraries().back();
}

bool has_composite(const OperatorHandle& op) {
  return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) ||
         op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// Views share their argument's storage, whatever the device.
bool is_view(const OperatorHandle& op) {
  for (const c10::Argument& result : op.schema().returns())
    if (result.alias_info() && !result.alias_info()->isWrite()) return true;
  return false;
}

// What PyTorch itself derives from other ops needs no kernel, unless torch_npu has one, which
// would call CANN.
bool needs_kernel(const OperatorHandle& op) {
  return op.hasKernelForDispatchKey(DispatchKey::PrivateUse1) ||
         (op.hasKernelForDispatchKey(DispatchKey::CPU) && !has_composite(op));
}

template <class Visit>
void for_each_op(const std::string& name, Visit visit) {
  const std::string prefix = name + "::";
  for (const c10::OperatorName& op : c10::Dispatcher::singleton().getAllOpNames()) {
    if (op.name.rfind(prefix, 0) != 0) continue;
    const auto handle = c10::Dispatcher::singleton().findSchema(op);
    if (!handle) continue;
    const std::string short_name = op.name.substr(prefix.size());
    visit(*handle, op.overload_name.empty() ? short_name : short_name + "." + op.overload_name);
  }
}

// torch_npu's own kernels for autograd call its kernels for the device.
void drop_autograd(const std::string& name) {
  torch::Library& autograd = library(name, DispatchKey::AutogradPrivateUse1);
  for_each_op(name, [&](const OperatorHandle& op, const std::string& op_name) {
    if (op.hasKernelForDispatchKey(DispatchKey::AutogradPrivateUse1))
      autograd.impl(op_name.c_str(), torch::CppFunction::makeFallthrough());
  });
}

}  // namespace

void install_aten(const std::vector<std::string>& own_names) {
  const Names own(own_names.begin(), own_names.end());
  torch::Library& kernels = library("aten", DispatchKey::PrivateUse1);
  for_each_op("aten", [&](const OperatorHandle& op, const std::string& name) {
    if (own.count(name) || is_view(op) || !needs_kernel(op)) return;
    const bool known = op.hasKernelForDispatchKey(DispatchKey::PrivateUse1);
    const bool runs = op.hasKernelForDispatchKey(DispatchKey::CPU) || has_composite(op);
    kernels.impl(name.c_str(), !known ? torch::CppFunction::makeFromBoxedFunction<&fall_back>()
                               : runs ? torch::CppFunction::makeFromBoxedFunction<&launch>()
                                      : torch::CppFunction::makeFromBoxedFunction<&refuse>());
  });
  drop_autograd("aten");
}

void install_namespace(const std::string& name, const std::vector<std::string>& reference_names,
                       const std::vector<std::string>& host_only_names,
                       const std::vector<std::string>& own_names) {
  const Names references(reference_names.begin(), reference_names.end());
  const Names host_only(host_only_names.begin(), host_only_names.end());
  const Names own(own_names.begin(), own_names.end());
  torch::Library& kernels = library(name, DispatchKey::PrivateUse1);
  for_each_op(name, [&](const OperatorHandle& op, const std::string& op_name) {
    if (host_only.count(op_name))
      kernels.impl(op_name.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
    else if (references.count(op_name))
      kernels.impl(op_name.c_str(), torch::CppFunction::makeFromBoxedFunction<&launch>());
    else if (!own.count(op_name) && !has_composite(op))
      kernels.impl(op_name.c_str(), torch::CppFunction::makeFromBoxedFunction<&refuse>());
  });
  drop_autograd(name);
}

}  // namespace npu_sim
