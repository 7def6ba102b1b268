"""Share groups: who holds the lock on which records of a partition, and what may happen to them next.

A share group has one item for each partition (`share_state`). Plans (`acquire`, `acknowledge`, `bury`) say how one
conditional update changes it, and change nothing themselves. docs/protocol/share-groups argues the races.
"""
