"""Admin clients."""
