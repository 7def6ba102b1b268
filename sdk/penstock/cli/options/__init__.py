"""What the values of options mean: durations, times, places to start, settings."""
