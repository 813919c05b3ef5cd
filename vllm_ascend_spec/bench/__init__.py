"""Benchmarks: two configurations interleaved in one run, medians, ratios, a JSON record."""
