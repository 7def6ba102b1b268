"""A stage as a file: read the file, compare it with the stage, and bring the stage to it."""
