"""The simulator: the real use cases on in-memory storage, schedule and faults by a seed (docs/simulation.md).

`python -m tests.simulation --seed N --trace` replays one run, `--seeds A..B` runs many.
"""
