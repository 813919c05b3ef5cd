"""The drafting methods: one folder each with its record, its checks and its drafter."""
