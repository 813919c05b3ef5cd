"""The device's worker and runner with our proposer and verifier swapped in."""
