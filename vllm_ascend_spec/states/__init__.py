"""States that layers keep of what they have read, where others keep keys and values."""
