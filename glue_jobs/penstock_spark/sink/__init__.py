"""The writers of the data source."""
