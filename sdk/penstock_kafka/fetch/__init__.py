"""Fetch: sessions, waits, and answers of bounded size."""
