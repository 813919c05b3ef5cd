"""Options of speculation by the names that vLLM once had for them."""
