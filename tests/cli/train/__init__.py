"""``vllm-ascend-spec train``."""
