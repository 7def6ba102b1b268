"""The batches of a producer: what records join, when they leave, and what becomes of those that were refused."""
