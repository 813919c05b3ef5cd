"""Drafts looked up in the request's own text: what followed the last n-gram before (2304.04487)."""
