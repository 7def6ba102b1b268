"""Segments in S3."""
