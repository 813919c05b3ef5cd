"""Tests of the proposers' parts."""
