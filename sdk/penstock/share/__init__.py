"""Consumers of share groups: locks on records, acknowledgements, renewal (docs/protocol/share-groups)."""
