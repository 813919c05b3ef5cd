"""Tests of the control of K."""
