"""Tests of the draft loops."""
