"""Patches of faults that vLLM has without speculation, too; REPORTS.md has a report for each."""
