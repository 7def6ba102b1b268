"""Parallel mode: lanes take records of all partitions from a hidden share group."""
