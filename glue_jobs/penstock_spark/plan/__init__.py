"""The plan of a read: its options, a snapshot of the log, slices for the tasks, and the offsets of streams."""
