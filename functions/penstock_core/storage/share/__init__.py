"""The items of share groups: the group, and its state in each partition."""
