"""The copy of a topic: its plan, its chunks, its loop, and the offsets of groups."""
