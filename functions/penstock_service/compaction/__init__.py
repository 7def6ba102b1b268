"""The use cases of compaction: merge small refs into large ones of the archive tier, and clean topics by key."""
