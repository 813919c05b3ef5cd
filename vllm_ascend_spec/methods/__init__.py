"""The drafting methods: one folder per method with its record, its checks and its drafter."""
