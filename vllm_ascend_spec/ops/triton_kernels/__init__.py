"""The Triton kernels behind the ``triton`` backends.

Modules here import only Triton, and each other by relative imports, so that any Triton (that of
CUDA, the interpreter, triton-ascend) can load them without PyTorch or vLLM. They use only what
Triton 3.2 has and triton-ascend lowers: no atomics, sorts, scans, float64 or inline assembly.
Ascend respects a mask only if it is a box of consecutive elements. So blocks are loaded flat, and
single elements under an ``if``; ``tests/ops/triton_ascend/lint.py`` checks that.
"""
