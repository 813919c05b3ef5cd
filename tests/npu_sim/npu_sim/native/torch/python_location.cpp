#include "python_location.h"

#include <torch/csrc/utils/pybind.h>

namespace npu_sim {

std::string python_location() {
  constexpr int kFrames = 3;
  namespace py = pybind11;
  const py::gil_scoped_acquire lock;  // PyTorch calls kernels without it
  std::string location;
  auto frame = py::reinterpret_steal<py::object>(
      reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  for (int found = 0; frame && found < kFrames;) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    const auto file = py::str(code.attr("co_filename")).cast<std::string>();
    if (file.find("/site-packages/torch") == std::string::npos) {
      if (found++) location += ", from ";
      location += file + ":" + std::to_string(PyFrame_GetLineNumber(raw)) + " in " +
                  py::str(code.attr("co_name")).cast<std::string>();
    }
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return location;
}

}  // namespace npu_sim
