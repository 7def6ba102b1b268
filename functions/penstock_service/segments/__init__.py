"""Segments in zones: putting, reading, and reporting copies that are bad or missing."""
