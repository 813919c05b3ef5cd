"""The kinds of device: one record each, the order in which they are tried, the choice of one."""
