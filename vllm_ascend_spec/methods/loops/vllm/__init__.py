"""Our draft loop over vLLM's proposers, on CPU and CUDA."""
