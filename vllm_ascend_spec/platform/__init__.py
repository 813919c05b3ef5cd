"""Detect the device and adapt vLLM's platform to it. Selection imports neither torch nor vLLM."""
