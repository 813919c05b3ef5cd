"""Tests of method ``mtp``."""
