"""Find what in our package does not fit a version of vLLM or vllm-ascend, from sources alone."""
