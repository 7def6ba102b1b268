"""Penstock next to Kinesis on one emulator: records a second.

`systems` has a place for records and a client for each of them, `race` lets them take turns, and `__main__` is the
command with the bars that Penstock must reach.
"""
