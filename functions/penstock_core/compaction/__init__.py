"""Compaction: which refs to merge, and which records of a key to keep."""
