"""A Lambda function that sends each event to a topic, as one record.

Deploy it with `penstock` in its package, the policy `PenstockProduce` on its role, and PENSTOCK_URL and PENSTOCK_TOPIC
in its environment. The events here are EventBridge's: the record's value is the event's `detail`.

- The producer is made once per function instance. Later calls find its connections open.
- The handler waits until the record is stored. Lambda freezes the instance after the answer, and the producer's
  threads with it.
- Lambda may call the function twice for one event. The header `event-id` lets a consumer notice.
"""

import json
import os
from functools import cache
from typing import Any

from penstock import Producer


@cache
def shared_producer() -> Producer:
    """The producer of this function instance. It sends at once, because each call waits for its record."""
    return Producer(linger_ms=0)


def handler(event: dict[str, Any], _context: object, producer: Producer | None = None) -> dict[str, Any]:
    """Lambda's entry point. If the record cannot be stored it raises, and Lambda calls it again.

    Lambda passes two arguments. Tests pass a producer too.
    """
    sent = (producer or shared_producer()).send(
        os.environ.get("PENSTOCK_TOPIC", "orders"),
        json.dumps(event["detail"]),
        key=event["detail"]["customer"],
        headers=[("event-id", event["id"].encode())],
    )
    stored = sent.result()
    return {"topic": stored.topic, "partition": stored.partition, "offset": stored.offset}
