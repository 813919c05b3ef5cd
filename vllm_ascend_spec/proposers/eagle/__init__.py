"""EAGLE (Li et al., 2401.15077)."""
