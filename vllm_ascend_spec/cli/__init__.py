"""The command ``vllm-ascend-spec``."""
