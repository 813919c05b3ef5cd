"""Tests of the parts of the training command."""
