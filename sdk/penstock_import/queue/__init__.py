"""SQS queues: their messages, the memory of those that were taken, and the drain."""
