"""A Lambda function that stores an order in the topic `orders` before it answers."""

import json
from functools import cache
from typing import Any

from penstock import Producer


@cache
def shared_producer() -> Producer:
    """The producer of this function instance."""
    return Producer(delivery_timeout_ms=6_000, max_block_ms=6_000)


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Stores the event, and answers where. Raises if it could not be stored."""
    sent = shared_producer().send("orders", json.dumps(event), key=str(event["customer"]))
    shared_producer().flush(8)
    stored = sent.result()
    return {"topic": stored.topic, "partition": stored.partition, "offset": stored.offset}
