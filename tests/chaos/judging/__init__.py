"""The verdict on a chaos run: on its history, and on its compacted topic."""
