"""Mirrors: the source pushes its log, the other stage appends it at the same offsets, and a promotion ends that."""
