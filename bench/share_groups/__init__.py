"""Share groups on the deployed local stack: workers that are killed, and records that are slow."""
