"""Differences between the supported versions of vLLM and vllm-ascend, one file per subject.

A file here asks :mod:`ranges` which version is installed, and the rest of the package asks these
files. No other file compares versions or tests whether an upstream name can be imported, except
patches (``patches/``), which name their own range.
"""
