"""An Ascend NPU simulated on the CPU, underneath the real torch_npu. See README.md."""

__version__ = "0.1.0"
