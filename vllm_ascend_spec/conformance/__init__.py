"""What of ours does not fit a version of vLLM or vllm-ascend, found in the sources alone."""
