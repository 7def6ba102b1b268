"""Replays: archived records, appended to a topic again."""
