"""States that are no KV cache."""
