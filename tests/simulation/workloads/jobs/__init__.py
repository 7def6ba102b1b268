"""Workloads that run the scheduled functions, the jobs, and the functions that events start."""
