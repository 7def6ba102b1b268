"""Groups: members and their sessions, target assignments, and the leases that fence commits."""
