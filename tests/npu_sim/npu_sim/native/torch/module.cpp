// What Python sees of the native parts, as the module _npu_sim_native.
#include <torch/extension.h>

#include "../runtime/tape.h"
#include "alias.h"
#include "dispatch.h"
#include "traffic.h"

namespace py = pybind11;
using namespace npu_sim;

namespace {

// A Python function as a task. It is called and released with the interpreter's lock held.
std::function<void()> held(py::object function) {
  auto shared = std::shared_ptr<py::object>(new py::object(std::move(function)), [](py::object* f) {
    py::gil_scoped_acquire lock;
    delete f;
  });
  return [shared] {
    py::gil_scoped_acquire lock;
    (*shared)();
  };
}

Task python_task(const std::string& name, int64_t read, int64_t written, py::object run) {
  Task task;
  task.name = name;
  task.traffic = {read, written};
  task.run = held(std::move(run));
  return task;
}

void keep_tensor(const at::Tensor& tensor) {
  const auto [begin, bytes] = span(tensor);
  keep(begin, bytes);
}

at::Tensor on_device(const at::Tensor& tensor, c10::Device device) {
  Aliases aliases;
  aliases.device = device;
  return aliases.to_npu(tensor);
}

py::dict snapshot() {
  const Counters now = counters();
  py::dict ops;
  for (const auto& [name, count] : now.ops)
    ops[py::str(name)] = py::make_tuple(count.launched, count.replayed, count.captured,
                                        count.bytes_read, count.bytes_written);
  py::dict all;
  all["ops"] = ops;
  all["events"] = now.events;
  return all;
}

}  // namespace

PYBIND11_MODULE(_npu_sim_native, module) {
  py::enum_<Mode>(module, "Mode")
      .value("EAGER", Mode::kEager)
      .value("CAPTURE", Mode::kCapture)
      .value("UPDATE", Mode::kUpdate);
  module.def("install_aten", &install_aten);
  module.def("install_namespace", &install_namespace);
  module.def("mode", &mode);
  module.def("check_launch", &check_launch, py::call_guard<py::gil_scoped_release>());
  module.def("cpu_alias", [](const at::Tensor& tensor) {
    return is_npu(tensor) ? cpu_alias(tensor) : tensor;
  });
  module.def("on_device", [](const at::Tensor& tensor, const at::Tensor& like) {
    return on_device(tensor, like.device());
  });
  module.def("tensor_bytes", &tensor_bytes);
  module.def("keep", &keep_tensor);
  module.def("record", [](const std::string& name, int64_t read, int64_t written, py::object run) {
    record(python_task(name, read, written, std::move(run)));
  });
  module.def("replace", [](const std::string& name, int64_t read, int64_t written,
                           py::object run) {
    replace(python_task(name, read, written, std::move(run)));
  });
  module.def("count_launch", [](const std::string& name, int64_t read, int64_t written) {
    count_op(name, {read, written}, Launch::kEager);
  });
  module.def("tolerate", &tolerate);
  module.def("count_event", &count_event, py::arg("name"), py::arg("amount") = 1);
  module.def("counters", &snapshot);
}
