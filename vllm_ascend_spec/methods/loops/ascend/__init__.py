"""Our draft loop over vllm-ascend's proposers, on the NPU."""
