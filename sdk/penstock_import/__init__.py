"""`penstock import`: copies Kafka topics and drains SQS queues into Penstock, each record once (docs/adr/0060).

The rooms: `source` reads Kafka, `progress` notes what was copied, `copying` copies topics, `queue` drains queues.
"""
