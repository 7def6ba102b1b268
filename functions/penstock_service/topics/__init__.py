"""The use cases of topics: create, alter, delete, describe and list them, list offsets, truncate."""
