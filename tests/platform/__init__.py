"""Tests of the choice of platform."""
