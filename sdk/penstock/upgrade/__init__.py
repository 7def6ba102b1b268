"""`penstock upgrade`: whether a release may be deployed over a stage, and its old versions (docs/how-to/upgrade.md)."""
