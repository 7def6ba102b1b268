"""The use cases of records: produce and fetch."""
