"""The partitions of a share group, and its states in them.

The lock id that a client gets: the lock's id, its bytes as a token, and a mark of the group and the topic.

```
c8KqP2xA.0~AAQBAaIFyyNCAAEBAAY~5f1c
```
The mark tells a group or a topic from one that was made anew under its name. An acknowledgement of a lock in the old
one finds nothing in the new one, and must not be answered as if its records were finished.

Wake the consumers of a share group that wait for records that come back (docs/protocol/share-groups).

```
channel                       event, JSON text
/wake/<share group id>/share  {"share_group_id": "…", "topic_id": "…", "partition": 3}
```
An acknowledgement that takes a waiter out of a share item sends it. So does one whose answer was lost, and one that
repeats a release: they do not know whether the first try has sent it.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import LockId, Partition, TopicName
from penstock_core.limits import SHARE_LEFT_TOPICS_MAX
from penstock_core.log.index import Head
from penstock_core.log.topic import Topic
from penstock_core.log.wake_up import NAMESPACE, WakeUpMessage
from penstock_core.records.partitioner import murmur2
from penstock_core.share.acquire import Grant
from penstock_core.share.share_codec import client_lock_id, parse_client_lock_id
from penstock_core.share.share_group import ShareGroup
from penstock_core.share.share_state import NOTHING_HELD, HeldBack, Lock, ShareKey, ShareState
from penstock_service.instance.instance import Instance
from penstock_service.records.wake_readers import send_beside

_SEPARATOR = "~"
_MARK_BITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartition:
    """A partition as the look found it. `state` is None if the group has never handed out a record of it.

    `held` is what older generations of the topic hold back of it.
    """

    topic: TopicName
    key: ShareKey
    head: Head
    state: ShareState | None
    held: HeldBack = NOTHING_HELD


def partitions_of(instance: Instance, group: ShareGroup) -> list[tuple[TopicName, ShareKey]]:
    """All partitions by topic, in the group's order, and number. A topic that was deleted or made anew has none.

    One read for each topic that is not remembered.
    """
    return _keys(instance, group, Topic.all_partitions)


def states_that_may_be(instance: Instance, group: ShareGroup) -> list[tuple[TopicName, ShareKey]]:
    """As `partitions_of`, and the partitions that went: the group's states in them are still there."""
    return _keys(instance, group, Topic.all_heads)


def _keys(
    instance: Instance, group: ShareGroup, numbers: Callable[[Topic], Sequence[Partition]]
) -> list[tuple[TopicName, ShareKey]]:
    found = []
    for name in group.ordered_topics:
        topic_id = group.topics[name]
        topic = instance.topic_cache.find(name)
        if topic is not None and topic.topic_id == topic_id:
            found += [(name, ShareKey(group.share_group_id, topic_id, number)) for number in numbers(topic)]
    return found


def succeeding(group: ShareGroup, old: ShareGroup) -> ShareGroup:
    """The group in place of `old`, with a note of the topics that it has left: it has states there.

    Raises INVALID_CONFIG for more than `SHARE_LEFT_TOPICS_MAX` notes.
    """
    group = group.succeeding(old)
    if len(group.left_topics) > SHARE_LEFT_TOPICS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"{group.name!r} has left {len(group.left_topics)} topics: {SHARE_LEFT_TOPICS_MAX} at most. Make a new one",
            limit=SHARE_LEFT_TOPICS_MAX,
        )
    return group


def states_of(instance: Instance, keys: Sequence[ShareKey]) -> Mapping[ShareKey, ShareState]:
    """The states of these partitions, without those that have none. One read for each 100."""
    return instance.stores.share.find_states(keys) if keys else {}


def marked_lock_id(grant: Grant, key: ShareKey) -> str:
    """The lock id that the client gets for the grant."""
    return f"{client_lock_id(grant.lock_id, grant.lock, grant.generation)}{_SEPARATOR}{mark_of(key)}"


def parse_marked_lock_id(text: str) -> tuple[LockId, int, Lock | None, str]:
    """The lock's id, its generation, the lock as it was handed out if the id tells it, and the mark; "" for none.

    Raises INVALID_REQUEST for a token that is damaged.
    """
    rest, separator, mark = text.rpartition(_SEPARATOR)
    if not separator or len(mark) != _MARK_BITS // 4:
        rest, mark = text, ""
    return *parse_client_lock_id(rest), mark


def mark_of(key: ShareKey) -> str:
    """Four hexadecimal digits that follow from the share group's id and the topic's."""
    return f"{murmur2(f'{key.share_group_id}{key.topic_id}'.encode()) % 2**_MARK_BITS:04x}"


def count_expired(instance: Instance, records: int) -> None:
    """Count records that an update has finished because their time was over."""
    if records:
        instance.telemetry.count("share_records_expired", records)


def wake_workers(instance: Instance, keys: Iterable[ShareKey]) -> None:
    """Send one message for each partition, within `WAKE_UP_MS_MAX`. Costs what `send_beside` costs."""
    send_beside(instance, [_message(key) for key in dict.fromkeys(keys)], lambda: None)


def _message(key: ShareKey) -> WakeUpMessage:
    event = {"share_group_id": key.share_group_id, "topic_id": key.topic_id, "partition": key.partition}
    return WakeUpMessage(
        channel=f"/{NAMESPACE}/{key.share_group_id}/share", event=json.dumps(event, separators=(",", ":"))
    )
