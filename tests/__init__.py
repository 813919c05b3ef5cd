"""Tests of vllm-ascend-spec; the folders mirror the package."""
