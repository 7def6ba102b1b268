"""The use cases of groups: heartbeats and rebalances, committed offsets, and the operators' calls."""
