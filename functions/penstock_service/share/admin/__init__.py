"""Create, alter, describe, reset and delete share groups."""
