"""The oracle of a run: the log as it must be, and the checks of every effect."""
