"""Stored items and keys: each is built and parsed here, and nowhere else."""
