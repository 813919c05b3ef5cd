"""Tests of the drafting methods and of the draft loops that they share."""
