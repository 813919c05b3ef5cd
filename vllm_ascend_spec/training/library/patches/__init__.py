"""Patches of the speculators library, one file each, applied in the process that trains."""
