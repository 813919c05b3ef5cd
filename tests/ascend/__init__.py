"""Our plugin on top of the real vllm-ascend, on an NPU: the simulated one, or silicon."""
