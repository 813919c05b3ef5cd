"""What the person asked for, as one frozen, validated record. Imports neither torch nor vLLM."""
