"""The check of push subscriptions (G13): what their targets handled, what was buried, and what was copied."""
