"""Drafts from a class of the person's own, named by ``speculative_config.model``."""
