"""Scale by simulation: latency, the bottleneck and the price of Penstock on AWS.

A discrete-event model (simpy) of producers, API Gateway, Lambda, S3 Express, DynamoDB, wake-ups and consumers.
latencies.py and scenario.py have every number that comes from outside, each with its source. The calls of a request are
those that were counted (`sdk/penstock/cost/counted.json`), and the CPU of a function is the measured one.
Penstock has not run on AWS.
"""
