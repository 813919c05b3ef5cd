"""Tests of options and of the checks before start."""
