"""Benches of Spark's jobs, reads and streams."""
