"""Mirrors: what a push of one stage's log to another one carries, and what the other stage does with it.

docs/protocol/mirrors argues the races. Nothing here does I/O.
"""
