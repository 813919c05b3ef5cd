"""Benchmarks for developers, by parts of the engine: ``python -m tests.benchmarks``."""
