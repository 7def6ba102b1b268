"""A share group in memory, and its consumers as the tests of its use cases need them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock_core.ids import LockNonce, ShareGroupId
from penstock_core.limits import FETCH_BYTES_MAX
from penstock_core.records.codec import decode
from penstock_core.share.acknowledge import Acknowledgement, AckResult, AckType
from penstock_core.share.record_set import Ranges
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_service.instance.instance import Instance
from penstock_service.share.acknowledge import AckEntry, AckOutcome, acknowledge
from penstock_service.share.acquire.acquire import Acquired, AcquireWish, acquire
from penstock_service.share.acquire.hand_over import HandedLock
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.share.share_partitions import parse_marked_lock_id
from tests.support.service import key_of

GROUP = "workers"


def new_group(instance: Instance, *topics: str, **config: Any) -> ShareGroupId:
    """The share group of these tests, by default of the topic orders."""
    group, _ = put_share_group(instance, GROUP, topics or ("orders",), config)
    return group.share_group_id


def take(
    instance: Instance,
    records: int = 100,
    *,
    nonce: str | None = None,
    bytes_max: int = FETCH_BYTES_MAX,
    acknowledge: Sequence[AckEntry] = (),
    **wish: Any,
) -> Acquired:
    """One acquire."""
    return acquire(
        instance,
        GROUP,
        AcquireWish(
            nonce=None if nonce is None else LockNonce(nonce),
            records_max=records,
            bytes_max=bytes_max,
            acknowledgements=acknowledge,
            **wish,
        ),
    )


def locks_in(acquired: Acquired) -> list[HandedLock]:
    return [lock for each in acquired.partitions for lock in each.locks]


def offsets_in(acquired: Acquired) -> list[tuple[int, int]]:
    """Partition and offset of each record that was acquired, in the order of the answer."""
    return [
        (lock.partition.key.partition, offset) for lock in locks_in(acquired) for offset in lock.grant.records.offsets()
    ]


def values_in(acquired: Acquired) -> list[str]:
    """The values of the records that were acquired, as a consumer reads them."""
    return [
        (record.value or b"").decode()
        for lock in locks_in(acquired)
        for batch in lock.batches
        for record in decode(batch.data)
        if record.offset in {*lock.grant.records.offsets()}
    ]


def entry_of(lock: HandedLock, kind: AckType = AckType.ACCEPT, offsets: Ranges | None = None, **facts: Any) -> AckEntry:
    """An acknowledgement of the lock, or of some of its offsets, as its client sends it."""
    lock_id, generation, handed_out, mark = parse_marked_lock_id(lock.client_lock_id)
    return AckEntry(
        topic=lock.partition.topic,
        partition=lock.partition.key.partition,
        client_lock_id=lock.client_lock_id,
        mark=mark,
        acknowledgement=Acknowledgement(
            lock_id=lock_id, type=kind, offsets=offsets, generation=generation, handed_out=handed_out, **facts
        ),
    )


def following(outcome: AckOutcome, kind: AckType = AckType.ACCEPT, offsets: Ranges | None = None) -> AckEntry:
    """An acknowledgement under the lock id that the answer to an earlier one has told."""
    assert outcome.next_lock_id is not None
    lock_id, generation, handed_out, mark = parse_marked_lock_id(outcome.next_lock_id)
    assert handed_out is not None
    return replace(
        outcome.entry,
        client_lock_id=outcome.next_lock_id,
        mark=mark,
        acknowledgement=Acknowledgement(
            lock_id=lock_id, type=kind, offsets=offsets, generation=generation, handed_out=handed_out
        ),
    )


def entries_of(acquired: Acquired, kind: AckType = AckType.ACCEPT, **facts: Any) -> list[AckEntry]:
    """An acknowledgement of each lock."""
    return [entry_of(lock, kind, **facts) for lock in locks_in(acquired)]


def finish(instance: Instance, acquired: Acquired, kind: AckType = AckType.ACCEPT, **facts: Any) -> list[AckOutcome]:
    """Acknowledge all that was acquired."""
    return acknowledge(instance, GROUP, entries_of(acquired, kind, **facts))


def results_of(outcomes: Sequence[AckOutcome]) -> list[tuple[Ranges | None, AckResult]]:
    return [(each.ranges, each.result) for each in outcomes]


def state_of(instance: Instance, partition: int = 0, topic: str = "orders") -> ShareState:
    """The state of the group in a partition."""
    group = instance.stores.share.get_group(instance.share_group_cache.read_through(GROUP).name)
    assert group is not None
    key = key_of(instance, topic, partition)
    return instance.stores.share.find_states([ShareKey(group.share_group_id, key.topic_id, key.partition)])[
        ShareKey(group.share_group_id, key.topic_id, key.partition)
    ]
