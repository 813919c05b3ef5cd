"""Method suffix."""
