"""Metrics of topics and of their consumers: the figures, and which of them get a series of their own."""
