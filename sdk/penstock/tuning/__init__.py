"""The one table of all settings: `penstock config show` and docs/reference/settings.md are made from it."""
