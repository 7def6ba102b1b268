"""The meaning of the values of options: durations, times, places to start, settings."""
