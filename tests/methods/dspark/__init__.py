"""DSpark heads."""
