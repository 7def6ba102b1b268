"""The error of a local stack, for the person at the terminal."""


class LocalStackError(Exception):
    """The message says what is wrong, with the value and the way out. The command prints it and exits with 1."""
