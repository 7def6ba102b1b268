"""The items of groups: the group, its members, its target and its leases."""
