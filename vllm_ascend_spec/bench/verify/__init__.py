"""``bench verify``: the verification kernels against their peers."""
