"""The demo of `make run`: one topic as a log, another as a queue."""
