"""How many drafts are accepted, read from vLLM's own counters."""
