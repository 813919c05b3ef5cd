"""Tests of the worker and of the runner."""
