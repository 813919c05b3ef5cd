"""Mends of other people's code, one file each: why, how, and what upstream change removes it."""
