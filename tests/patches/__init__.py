"""Tests of the patches: each shows the fault, and its absence with the patch."""
