"""The rows, by what they look at."""
