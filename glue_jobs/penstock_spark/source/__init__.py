"""The data source that reads topics, in batches and as a stream."""
