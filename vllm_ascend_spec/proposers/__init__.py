"""Draft tokens: one folder a method, behind a registry with lazy imports."""
