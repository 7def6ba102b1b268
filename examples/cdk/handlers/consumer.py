"""A Lambda function that handles what waits in the topic `orders`, and rejects what it can never handle.

Rejected records go to the topic `orders.dead`. A record whose handling fails otherwise comes again, twice at most.
"""

import json
from typing import Any

from penstock import ShareConsumer

BATCH = 100
WAIT_MS = 2_000


def handler(_event: object, _context: object) -> dict[str, Any]:
    """Handles one batch, and answers the orders that it has handled and the number of those that it has rejected."""
    handled, rejected = [], 0
    with ShareConsumer("orders", group_id="workers", wait="poll") as consumer:
        for record in consumer.poll(BATCH, WAIT_MS):
            order = json.loads(record.value or b"{}")
            if order.get("pieces", 0) < 1:
                consumer.reject(record, "an order has one piece or more")
                rejected += 1
            else:
                handled.append(order)
                consumer.accept(record)
    return {"handled": handled, "rejected": rejected}
