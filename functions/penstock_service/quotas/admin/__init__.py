"""The work of operators with quotas."""
