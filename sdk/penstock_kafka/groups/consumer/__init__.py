"""The newer protocol, in which the broker assigns (KIP-848)."""
