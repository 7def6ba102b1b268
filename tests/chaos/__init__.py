"""Faults on the running stack, and the history checker's verdict on what clients saw (docs/contributing/chaos.md)."""
