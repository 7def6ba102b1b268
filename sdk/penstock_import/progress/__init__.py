"""Notes of what was copied. They are stored with the records, and tell where groups go on."""
