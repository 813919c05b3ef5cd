"""Translation of vLLM's old options of speculation to ``speculative_config``."""
