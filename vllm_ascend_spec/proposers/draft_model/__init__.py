"""A small model of the same vocabulary drafts for a large one (Leviathan et al., 2211.17192)."""
