"""The counts that a function keeps of its requests, and publishes as metrics."""
