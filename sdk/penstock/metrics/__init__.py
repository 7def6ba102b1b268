"""Figures of topics and consumers for Prometheus, read through the API."""
