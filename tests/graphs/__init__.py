"""Tests of the planner of capture sizes, its loads, budgets and peers."""
