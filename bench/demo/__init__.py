"""What `make run` shows: one topic as a log, another as a queue."""
