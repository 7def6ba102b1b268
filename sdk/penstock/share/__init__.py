"""Consumers of share groups: locks on records, acknowledgements, renewal (docs/adr/0041)."""
