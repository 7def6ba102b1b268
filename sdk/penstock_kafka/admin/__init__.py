"""Topics, their settings, and access rules."""
