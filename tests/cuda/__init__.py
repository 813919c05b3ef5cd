"""Every method on a real NVIDIA GPU: ``python -m pytest tests/cuda``."""
