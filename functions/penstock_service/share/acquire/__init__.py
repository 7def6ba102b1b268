"""Acquire records of a share group: find them, lock them, read them, hand them over."""
