"""Capture of graphs: which sizes pay, what they cost, and what vLLM would capture instead."""
