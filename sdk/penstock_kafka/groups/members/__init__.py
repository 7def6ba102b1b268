"""Clients as members: their leases, their sessions, and how another gateway goes on with them."""
