"""Defects that a test puts in. The simulator must find each of them (tests/simulation/test_simulation.py)."""
