"""Heads over the target's last hidden state: what medusa and mlp_speculator share."""
