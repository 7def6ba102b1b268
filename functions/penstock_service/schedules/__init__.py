"""Schedules: callers write them, and a function runs those that are due (docs/protocol/schedules)."""
