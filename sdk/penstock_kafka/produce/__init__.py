"""Produce: batches of all connections, joined into few calls of the service."""
