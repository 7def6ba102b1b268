"""The memory of one function instance between requests, which it may lose at any time."""
