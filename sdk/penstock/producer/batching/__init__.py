"""The batches of a producer: what records join, when they leave, and what happens to those that were refused."""
