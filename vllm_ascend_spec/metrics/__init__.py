"""Metrics of speculation: our own ones, and readers of vLLM's acceptance counters."""
