"""What ``benchmarks verify`` measures, and how."""
