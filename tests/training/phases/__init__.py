"""Tests of the phases of ``train``."""
