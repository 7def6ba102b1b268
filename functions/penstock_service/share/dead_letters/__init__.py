"""Dead letters: bury records in the dead-letter topic of their group, and move them back."""
