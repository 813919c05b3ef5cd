"""Draft loops of methods with a draft model: two families, vLLM's and vllm-ascend's."""
