"""The use cases of share groups: create and alter, delete, describe, reset, acquire, acknowledge."""
