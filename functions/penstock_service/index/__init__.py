"""Readers of a partition's index."""
