"""What we build on: is it still there, and do vllm-ascend's own tests pass with our proposers?"""
