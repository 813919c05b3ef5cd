"""A library that cannot be imported."""

raise ImportError("no symbol of that name")
