"""The n-gram proposer."""
