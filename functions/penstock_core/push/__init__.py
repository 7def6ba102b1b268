"""Subscriptions: what a delivery to a target may do next, and what becomes of records that the target cannot handle.

docs/adr/0042 argues the races. Nothing here does I/O.
"""
