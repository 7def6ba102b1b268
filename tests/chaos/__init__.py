"""Faults on the running stack, and the verdict of the history checker on what its clients saw (docs/chaos.md)."""
