"""What each supported version of vLLM and vllm-ascend comes to with us."""
