"""Benchmarks that interleave configurations in one run and record medians and ratios as JSON."""
