"""Method hybrid."""
