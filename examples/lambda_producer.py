"""A Lambda function that stores the messages of an SQS queue in a topic.

Deploy it with `penstock` in its package, the policy `PenstockProduce` on its role, PENSTOCK_URL and PENSTOCK_TOPIC in
its environment, and a timeout of 10 s. Switch ReportBatchItemFailures on. docs/how-to/lambda-producer.md tells more.

- The producer is made once per function instance. Later calls find its connections open.
- The handler flushes before it answers. Lambda freezes the instance after the answer, and the producer's threads with
  it. A record that still waits then goes with the next event, or is lost with the instance.
- Messages whose records are not stored are named in the answer, and SQS delivers them again.
- A record may be stored although its message is named: its answer was lost. SQS, too, may deliver a message twice. The
  header `message-id` lets a consumer notice.
"""

import os
from functools import cache
from typing import Any

from penstock import Producer

GIVE_UP_MS = 6_000  # a record fails after this
FLUSH_S = 8  # a request on its way may take longer; the function has 10 s


@cache
def shared_producer() -> Producer:
    """The producer of this function instance."""
    return Producer(delivery_timeout_ms=GIVE_UP_MS, max_block_ms=GIVE_UP_MS)


def handler(event: dict[str, Any], _context: object, producer: Producer | None = None) -> dict[str, Any]:
    """Lambda's entry point: the messages that SQS has to deliver again. If it raises, all of them come again.

    Lambda passes two arguments. Tests pass a producer too.
    """
    producer = producer or shared_producer()
    topic = os.environ.get("PENSTOCK_TOPIC", "orders")
    sent = [
        (message["messageId"], producer.send(topic, message["body"], headers=[("message-id", _id_of(message))]))
        for message in event["Records"]
    ]
    producer.flush(FLUSH_S)
    failed = [message_id for message_id, delivery in sent if delivery.exception() is not None]
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}


def _id_of(message: dict[str, Any]) -> bytes:
    return str(message["messageId"]).encode()
