"""Membership of a group: heartbeats, leases, commits."""
