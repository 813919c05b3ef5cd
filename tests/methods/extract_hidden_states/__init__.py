"""Method extract_hidden_states."""
