"""The ports: protocols of the storage and the runtime that the use cases need, one file for each noun.

Every method of every port raises PenstockError only. If the answer to a write was lost and the write may have happened,
the error carries `maybe_applied`. Every other error of a write means that the write changed nothing.

Each docstring ends with the calls that the method costs when no call fails.
"""
