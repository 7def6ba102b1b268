"""Penstock beside what you would pick instead, on one machine and in one run.

Kinesis and SQS are those of the emulator of the local stack, as Penstock is. Redis, RabbitMQ and NATS are servers on
127.0.0.1, from Debian, with durable settings. A rival makes its topic, and gives clients that send and receive.
"""
