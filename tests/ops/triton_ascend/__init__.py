"""Triton kernels lowered for Ascend without CANN: do they lower, is the IR sound, is it right?

triton-ascend (in an environment of its own, it takes the name ``triton``) turns the kernels into
the MLIR that goes to Ascend's compiler. That IR is linted (``lint.py``) and, compiled by Debian's
MLIR for this CPU, executed under the backends' own host code (``launch.py``). What follows on a
device, Ascend's closed compiler and the hardware itself, is out of reach here: nothing in this
folder says that a kernel compiles there, fits exactly, or is fast.
"""
