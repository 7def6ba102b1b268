"""Transformers: read, process and write exactly once."""
