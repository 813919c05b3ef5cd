"""Tests of the mends: each shows the fault, and its absence with the mend."""
