"""The items of quotas: the quotas themselves, and the buckets that count what is spent."""
