"""Moves records of plain groups to a dead-letter topic."""
