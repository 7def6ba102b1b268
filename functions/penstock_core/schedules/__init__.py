"""Schedules: records that come to a topic at the times of a cron expression (docs/adr/0085)."""
