"""The batches of given records: read them from the log, and sift them for an acquire or a redrive."""
