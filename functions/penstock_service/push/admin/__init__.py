"""Create, alter, pause, resume, describe and delete subscriptions."""
