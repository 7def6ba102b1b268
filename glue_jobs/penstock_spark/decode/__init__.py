"""Decoding: from segments to Arrow columns."""
