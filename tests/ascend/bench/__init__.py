"""``make bench-npu-sim``: a speculative step's cost on the simulated NPU, against vllm-ascend."""
