"""The proposer around a person's class."""
