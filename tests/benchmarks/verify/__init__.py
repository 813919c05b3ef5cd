"""``benchmarks verify``: compare the verification kernels with their peers."""
