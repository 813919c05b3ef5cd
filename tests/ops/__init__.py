"""Tests of the ops: contract, exactness, argument checks."""
