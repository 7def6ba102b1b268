"""What can go wrong with a local stack, told to the person at the terminal."""


class LocalStackError(Exception):
    """Says what was wrong, with the value, and the way out. The command prints it and exits with 1."""
