"""The message that starts a delivery: a lane of a subscription that may have work.

`{"subscription": <name>, "id": <id>, "lane": n, "version": n, "partition": "<topic id>#<n>" or null}`. A message may
be doubled or late, because a delivery looks at the lane itself. `partition` is a hint: the receiver may remember a
topic that did not have it yet.
"""

import json
from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey, SubscriptionId, SubscriptionName, parse_partition_key


@dataclass(frozen=True, slots=True, kw_only=True)
class PushMessage:
    """`version` is that of the subscription as the sender read it."""

    name: SubscriptionName
    subscription_id: SubscriptionId
    lane: int
    version: int
    partition: PartitionKey | None = None


def encode_push_message(message: PushMessage) -> str:
    """The text of the message."""
    return json.dumps(
        {
            "subscription": message.name,
            "id": message.subscription_id,
            "lane": message.lane,
            "version": message.version,
            "partition": None if message.partition is None else str(message.partition),
        }
    )


def decode_push_message(text: str) -> PushMessage:
    """The inverse of `encode_push_message`. Raises INVALID_REQUEST for any other text."""
    try:
        fields = json.loads(text)
        partition = fields["partition"]
        return PushMessage(
            name=SubscriptionName(str(fields["subscription"])),
            subscription_id=SubscriptionId(str(fields["id"])),
            lane=int(fields["lane"]),
            version=int(fields["version"]),
            partition=None if partition is None else parse_partition_key(partition),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"{text!r:.200} is no message of a subscription: see push/message.py"
        ) from error
