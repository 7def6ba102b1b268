"""What schedules start: `run(instance)` of a task gives the figures of its log line."""
