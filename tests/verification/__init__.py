"""Tests of the verifier against vLLM's own sampler."""
