"""Measure consumers, and choose the topics that get series of their own."""
