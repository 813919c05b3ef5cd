"""``--quantization ascend`` without an NPU: run ModelSlim's W8A8 checkpoints on CPU and CUDA.

On an NPU vllm-ascend's own method is used. Formats and arithmetic are those of vllm-ascend
(vllm_ascend/quantization/methods/w8a8/w8a8_static.py, w8a8_dynamic.py).
"""
