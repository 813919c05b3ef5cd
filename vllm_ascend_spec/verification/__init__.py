"""Logits and drafts in, accepted tokens out. Lossless."""
