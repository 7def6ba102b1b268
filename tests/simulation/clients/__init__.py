"""The clients that workloads start: producers, readers, operators and group members."""
