"""`penstock restore --to TIME`: bring a whole stage back to an earlier second (docs/how-to/restore.md)."""
