#include "dispatch.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "../runtime/stream.h"
#include "../runtime/tape.h"
#include "generator.h"
#include "python_location.h"
#include "traffic.h"

extern "C" const char* aclGetRecentErrMsg();

namespace npu_sim {

using c10::IValue;
using c10::OperatorHandle;
using torch::jit::Stack;

namespace {

std::string full_name(const OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

c10::Device current_device() {
  return c10::impl::VirtualGuardImpl(c10::kPrivateUse1).getDevice();
}

Stream* current_stream() {
  const c10::impl::VirtualGuardImpl guard(c10::kPrivateUse1);
  return static_cast<Stream*>(guard.getStreamNativeHandle(guard.getStream(guard.getDevice())));
}

// Whether an op lets the host wait for its result: a number, or a size that depends on data.
bool waits_for_result(const OperatorHandle& op, const Stack& arguments) {
  if (op.hasTag(at::Tag::data_dependent_output)) return true;
  if (!op.hasTag(at::Tag::dynamic_output_shape) && op.schema().name() != "aten::index_put_" &&
      op.schema().name() != "aten::_index_put_impl_")
    return false;
  // Indexing is of known size, and no wait, unless an index is a mask.
  bool indexes = false;
  for (const IValue& argument : arguments) {
    if (!argument.isOptionalTensorList()) continue;
    indexes = true;
    for (const std::optional<at::Tensor>& index : argument.toOptionalTensorVector())
      if (index && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte))
        return true;
  }
  return !indexes;
}

// One call of an op: its arguments as the CPU's kernels take them, and what came out.
class Call {
 public:
  Call(const OperatorHandle& op, Stack* stack) : op_(op), stack_(stack) {
    const size_t count = op.schema().arguments().size();
    arguments_.assign(stack->end() - static_cast<int64_t>(count), stack->end());
    for (size_t i = 0; i < count; i++)
      cpu_arguments_.push_back(to_cpu(op.schema().arguments()[i], arguments_[i]));
    find_generators();
  }

  const Stack& arguments() const { return arguments_; }
  const std::vector<at::Tensor>& changed() const { return changed_; }
  std::vector<at::Tensor> device_arguments() const { return aliases_.device_tensors(); }

  // Run it, and leave the results on the stack as the device's tensors.
  void run() {
    Stack results = run_cpu(op_, cpu_arguments_);
    if (aliases_.resize_arguments()) rebuild();
    replace_stack(results);
  }

  // What runs the call again, on the same memory, into the results that `run` left.
  std::function<void()> again() const {
    // A number that the host passed belongs to the launch; memory that it copies from does not.
    Stack arguments = cpu_arguments_;
    if (op_.schema().name() != "aten::copy_")
      for (IValue& argument : arguments)
        if (argument.isTensor() && argument.toTensor().defined() &&
            argument.toTensor().dim() == 0 && is_host(argument.toTensor()))
          argument = argument.toTensor().clone();
    return [op = op_, arguments, generators = generators_, results = fresh_] {
      Stack now = arguments;
      for (const auto& [index, generator] : generators) now[index] = cpu_twin(generator);
      const Stack again = run_cpu(op, std::move(now));
      for (const auto& [index, position, into] : results) {
        const at::Tensor from = again[index].isTensor() ? again[index].toTensor()
                                                        : again[index].toTensorVector()[position];
        TORCH_CHECK(from.sizes() == into.sizes(), "npu_sim: ", full_name(op),
                    " returned another shape in a replay than when it was captured: ",
                    from.sizes(), " instead of ", into.sizes());
        into.copy_(from);
      }
    };
  }

  // Leave on the stack what the call returns if it is not run: the arguments that it changes.
  void skip() {
    const size_t count = op_.schema().returns().size();
    TORCH_CHECK(count == 0 || count == changed_.size(), "npu_sim: ", full_name(op_),
                " in an update of a task group returns new tensors; use its out variant");
    torch::jit::drop(*stack_, arguments_.size());
    for (size_t i = 0; i < count; i++) stack_->emplace_back(changed_[i]);
  }

  int64_t fresh_bytes() const {
    int64_t bytes = 0;
    for (const Fresh& result : fresh_) bytes += tensor_bytes(result.into);
    return bytes;
  }

 private:
  struct Fresh {
    size_t index;     // which return of the schema,
    size_t position;  // and which tensor if that is a list
    at::Tensor into;  // the CPU's view of the device's tensor
  };

  static Stack run_cpu(const OperatorHandle& op, Stack stack) {
    at::AutoDispatchBelowADInplaceOrView no_autograd;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    return stack;
  }

  // Whether a tensor is the host's own, not an alias of an argument on the device.
  bool is_host(const at::Tensor& tensor) const {
    for (const IValue& argument : arguments_)
      if (argument.isTensor() && argument.toTensor().is_same(tensor)) return true;
    return false;
  }

  at::Tensor alias(const c10::Argument& argument, const at::Tensor& tensor) {
    if (is_npu(tensor) && changes(argument)) changed_.push_back(tensor);
    return aliases_.to_cpu(tensor);
  }

  IValue to_cpu(const c10::Argument& argument, const IValue& value) {
    if (value.isTensor()) return alias(argument, value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector())
        list.push_back(alias(argument, tensor));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
        list.push_back(tensor ? std::make_optional(alias(argument, *tensor)) : std::nullopt);
      return list;
    }
    if (value.isDevice() && value.toDevice().type() == c10::kPrivateUse1) {
      aliases_.device = value.toDevice().has_index() ? value.toDevice() : current_device();
      return c10::Device(c10::kCPU);
    }
    if (argument.name() == "pin_memory") return false;
    return value;
  }

  // Draw from the generator that the op was given, or from the device's own. A replay draws on.
  void find_generators() {
    for (size_t i = 0; i < arguments_.size(); i++) {
      if (op_.schema().arguments()[i].name() != "generator") continue;
      const auto device = aliases_.device ? *aliases_.device : current_device();
      generators_.emplace_back(i, arguments_[i].isGenerator()
                                      ? arguments_[i].toGenerator()
                                      : at::globalContext().defaultGenerator(device));
      cpu_arguments_[i] = cpu_twin(generators_.back().second);
    }
  }

  // Take aliases anew after an argument got other memory.
  void rebuild() {
    aliases_ = Aliases();
    changed_.clear();
    for (size_t i = 0; i < arguments_.size(); i++)
      if (!cpu_arguments_[i].isGenerator())
        cpu_arguments_[i] = to_cpu(op_.schema().arguments()[i], arguments_[i]);
  }

  at::Tensor to_npu(const at::Tensor& result, size_t index, size_t position) {
    const bool fresh = result.defined() && !aliases_.is_argument(result);
    at::Tensor own = aliases_.to_npu(result);
    if (fresh && is_npu(own)) fresh_.push_back({index, position, cpu_alias(own)});
    return own;
  }

  // The device's tensors for the results, in place of the arguments on the stack. A changed
  // argument is returned as such, whatever the CPU's kernel returned for it.
  void replace_stack(const Stack& results) {
    const auto& returns = op_.schema().returns();
    torch::jit::drop(*stack_, arguments_.size());
    size_t next_changed = 0;
    for (size_t i = 0; i < results.size(); i++) {
      const bool is_changed = returns[i].alias_info() && returns[i].alias_info()->isWrite();
      if (is_changed && results[i].isTensor() && next_changed < changed_.size()) {
        stack_->emplace_back(changed_[next_changed++]);
      } else if (results[i].isTensor()) {
        stack_->emplace_back(to_npu(results[i].toTensor(), i, 0));
      } else if (results[i].isTensorList()) {
        c10::List<at::Tensor> list;
        const std::vector<at::Tensor> tensors = results[i].toTensorVector();
        for (size_t k = 0; k < tensors.size(); k++) list.push_back(to_npu(tensors[k], i, k));
        stack_->emplace_back(list);
      } else {
        stack_->emplace_back(results[i]);
      }
    }
  }

  const OperatorHandle op_;
  Stack* stack_;
  Stack arguments_;      // as the op was called
  Stack cpu_arguments_;  // as the CPU's kernel takes them
  Aliases aliases_;
  std::vector<std::pair<size_t, at::Generator>> generators_;  // by argument
  std::vector<at::Tensor> changed_;  // arguments on the device that the op changes
  std::vector<Fresh> fresh_;         // new tensors that it returned
};

// What a copy between host and device is besides its values: none of the device's ops.
struct Transfer {
  CopyKind kind = CopyKind::kDeviceToDevice;
  int64_t bytes = 0;
  bool waits = false;
  at::Tensor host;  // the host's tensor
};

Transfer transfer_of(const OperatorHandle& op, const Stack& arguments) {
  Transfer transfer;
  if (op.schema().name() != "aten::copy_" && op.schema().name() != "aten::_copy_from")
    return transfer;
  const bool into_first = op.schema().name() == "aten::copy_";
  const at::Tensor into = arguments[into_first ? 0 : 1].toTensor();
  const at::Tensor from = arguments[into_first ? 1 : 0].toTensor();
  if (is_npu(into) == is_npu(from)) return transfer;
  const bool to_host = is_npu(from);
  const bool non_blocking = arguments[2].toBool();
  transfer.kind = to_host ? CopyKind::kDeviceToHost : CopyKind::kHostToDevice;
  transfer.bytes = tensor_bytes(from);
  transfer.host = to_host ? into : from;
  // torch_npu lays out the host's part anew, in memory that is not pinned, unless it is as the copy
  // wants it; and a copy of memory that is not pinned makes the host wait.
  transfer.waits = !non_blocking || !transfer.host.is_contiguous() ||
                   into.sizes() != from.sizes() || !transfer.host.is_pinned();
  return transfer;
}

// The copy as what is under way after its launch, unless the host waits for it.
std::optional<HostCopy> host_copy(const Transfer& transfer) {
  if (!transfer.bytes || transfer.waits) return std::nullopt;
  return HostCopy{transfer.kind == CopyKind::kDeviceToHost, transfer.host.data_ptr(),
                  transfer.host.nbytes(), std::make_shared<c10::Storage>(transfer.host.storage()),
                  python_location()};
}

Traffic traffic_of(const OperatorHandle& op, const Call& call) {
  Traffic traffic = argument_traffic(op.schema(), call.arguments());
  add_results(traffic, op.schema(), call.arguments(), call.fresh_bytes());
  return traffic;
}

}  // namespace

void check_launch(const std::string& name) {
  TORCH_CHECK(may_launch(current_stream(), name) == kOk, aclGetRecentErrMsg());
}

void check_wait(const char* why, const std::string& name) {
  Stream* stream = current_stream();
  TORCH_CHECK(host_waits(why, stream) == kOk, name, ": ", aclGetRecentErrMsg());
  TORCH_CHECK(host_learns(stream) == kOk, name, ": ", aclGetRecentErrMsg());
}

void launch(const OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  Call call(op, stack);
  const bool is_item = op.schema().name() == "aten::_local_scalar_dense";
  const Transfer transfer = transfer_of(op, call.arguments());
  Task task;
  if (transfer.bytes) {
    task.copies = transfer.kind;
    task.copied = transfer.bytes;
    task.host_copy = host_copy(transfer);
  } else if (is_item) {
    task.copies = CopyKind::kDeviceToHost;
    task.copied = tensor_bytes(call.arguments()[0].toTensor());
  } else {
    task.name = full_name(op);
  }
  if (is_item || transfer.waits || waits_for_result(op, call.arguments()))
    check_wait(is_item ? "item" : transfer.waits ? "copy" : "result", full_name(op));
  switch (mode()) {
    case Mode::kEager: {
      check_launch(full_name(op));
      Stream* const stream = current_stream();
      if (task.host_copy) before_copying(stream, *task.host_copy);
      call.run();
      if (task.host_copy) set_off(stream, *task.host_copy);
      task.traffic = traffic_of(op, call);
      if (!task.name.empty()) count_op(task.name, task.traffic, Launch::kEager);
      if (task.copied) count_copy(task.copies, task.copied);
      break;
    }
    case Mode::kCapture:
      check_launch(full_name(op));
      if (task.host_copy) keep(task.host_copy->memory, task.host_copy->bytes);
      for (const at::Tensor& tensor : call.changed()) {
        const auto [begin, bytes] = span(tensor);
        keep(begin, bytes);
      }
      call.run();
      task.traffic = traffic_of(op, call);
      task.run = call.again();
      record(std::move(task));
      break;
    case Mode::kUpdate:
      task.traffic = traffic_of(op, call);
      task.run = call.again();
      replace(std::move(task));
      call.skip();
      break;
  }
}

void fall_back(const OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  check_wait("fallback", full_name(op));
  count_event("fallback:" + full_name(op));
  Call call(op, stack);
  int64_t read = 0;
  for (const at::Tensor& tensor : call.device_arguments()) read += tensor_bytes(tensor);
  count_copy(CopyKind::kDeviceToHost, read);
  check_launch(full_name(op));
  call.run();
  const Traffic traffic = traffic_of(op, call);
  if (traffic.written) count_copy(CopyKind::kHostToDevice, traffic.written);
}

void run_on_host(const OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  Call(op, stack).run();
}

void refuse(const OperatorHandle& op, c10::DispatchKeySet, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "npu_sim: ", full_name(op),
                              " has no reference implementation");
}

}  // namespace npu_sim
