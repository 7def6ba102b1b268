"""Explores the state machine of share groups, breadth first: `python -m tests.share_checker`.

Three workers, four records, two keys. A call is planned on the state of one moment and applied at any later one, by the
functions that the service runs. Any answer may be lost, any call may arrive twice, any worker may die, and time may
pass at any moment.
"""
