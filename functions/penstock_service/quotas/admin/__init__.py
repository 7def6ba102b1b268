"""What operators do with quotas."""
