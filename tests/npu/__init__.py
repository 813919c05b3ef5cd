"""The matrix of tests/ascend on a real NPU."""
