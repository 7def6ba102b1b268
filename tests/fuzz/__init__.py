"""Seeded fuzzing: broken batches through both decoders, and broken requests through the real handlers, in memory.

    python -m tests.fuzz decoders --count 100000 --seed 1
    python -m tests.fuzz requests --count 100000 --seed 1
    python -m tests.fuzz filters --count 100000 --seed 1

The tests of this folder run a few thousand inputs of each.
"""
