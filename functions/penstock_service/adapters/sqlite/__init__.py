"""The in-memory adapters with a database file below them, for a service in one process (docs/adr/0024)."""
