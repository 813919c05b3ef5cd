"""Patches of other people's code, one file each: why, how, and which upstream change ends it."""
