"""Benches of neighbours: a team under its quota, many instances, and a crowd that waits."""
