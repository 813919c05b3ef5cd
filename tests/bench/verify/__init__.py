"""What ``bench verify`` measures, and how."""
