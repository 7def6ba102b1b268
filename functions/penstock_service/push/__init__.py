"""Push subscriptions: deliver records to targets (docs/adr/0042)."""
