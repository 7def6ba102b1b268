"""Subscriptions: what a delivery to a target may do next, and what happens to records that the target cannot handle.

docs/protocol/push argues the races. Nothing here does I/O.
"""
