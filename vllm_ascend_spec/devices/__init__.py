"""The kinds of device: a record of each, the order in which they are tried, and the choice."""
