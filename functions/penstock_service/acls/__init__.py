"""Access rules: change them, list them, and ask what they decide."""
