"""The Triton kernels behind the ``triton`` backends.

Modules here import Triton only, and each other by relative imports, so that any Triton (that of
CUDA, the interpreter, triton-ascend) can load them without PyTorch or vLLM. They keep to what
Triton 3.2 has and triton-ascend lowers: no atomics, sorts, scans, float64 or inline assembly.
On Ascend only a mask that is a box of elements keeps the rest from being touched: blocks are
loaded flat, and single elements under an ``if``; ``tests/ops/triton_ascend/lint.py`` checks that.
"""
