"""What the user asked for, as one frozen, validated record. Imports neither torch nor vLLM."""
