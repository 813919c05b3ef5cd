// Where in a Python program a kernel is called.
#pragma once

#include <string>

namespace npu_sim {

// "file:line in function" of the innermost Python frames that are not PyTorch's, innermost first.
std::string python_location();

}  // namespace npu_sim
