"""Alarms and the metrics that they watch."""
