"""Tests of the C++ backend: of its library, its build, and its sources outside of PyTorch."""
