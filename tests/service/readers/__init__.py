"""Readers of stored batches go on behind those that hold too much, or cannot be decoded."""
