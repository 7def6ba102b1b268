"""Archives: topics in tables, each offset once."""
