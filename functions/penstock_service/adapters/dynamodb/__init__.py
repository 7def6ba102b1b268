"""The three tables, one module each."""
