"""vLLM's and vllm-ascend's platforms, one per device, adapted to our worker and scheduler."""
