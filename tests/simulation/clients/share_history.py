"""What workers of a share group ask and are told, for the history: the history checker judges it (G11)."""

from collections.abc import Sequence

from penstock_core.records.codec import decode
from penstock_core.share.acknowledge import AckType
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_group import ShareGroupConfig
from penstock_service.share.acknowledge import AckEntry, AckOutcome
from penstock_service.share.acquire.acquire import Acquired
from tests.history import format as history


def settings(topic: str, config: ShareGroupConfig) -> history.Share:
    """The group's settings."""
    return history.Share(
        topics=(topic,),
        deliveries_max=config.deliveries_max,
        is_by_key=config.is_by_key,
        dead_letter_topic=config.dead_letter_topic,
    )


def asked(entries: Sequence[AckEntry], lock_ms: int) -> list[history.MicroOp]:
    """The acknowledgements of a request. A renewal lasts for `lock_ms` unless it says otherwise."""
    return [_acknowledge(entry, entry.acknowledgement.offsets, None, lock_ms) for entry in entries]


def told(outcomes: Sequence[AckOutcome], lock_ms: int) -> list[history.MicroOp]:
    """The acknowledgements with their results."""
    return [_acknowledge(each.entry, each.ranges, history.AckResult(each.result.value), lock_ms) for each in outcomes]


def locks(acquired: Acquired) -> list[history.MicroOp]:
    """The locks of an answer, with their records."""
    return [
        history.Acquired(
            (partition.partition.topic, partition.partition.key.partition),
            lock.client_lock_id,
            lock.grant.lock.deliveries,
            max(0, lock.grant.lock.until_ms - acquired.now_ms),
            tuple(
                (record.offset, (record.value or b"").decode())
                for batch in lock.batches
                for record in decode(memoryview(bytes(batch.data)))
                if record.offset in RecordSet(lock.ranges).offsets()
            ),
        )
        for partition in acquired.partitions
        for lock in partition.locks
    ]


def _acknowledge(
    entry: AckEntry, ranges: Sequence[tuple[int, int]] | None, result: history.AckResult | None, lock_ms: int
) -> history.Acknowledge:
    acknowledgement = entry.acknowledgement
    verb = history.Verb(acknowledgement.type.value)
    if acknowledgement.type is AckType.RELEASE and acknowledgement.is_uncounted:
        verb = history.Verb.GIVE_BACK
    is_renewal = acknowledgement.type is AckType.RENEW
    detail = (acknowledgement.lock_ms or lock_ms) if is_renewal else (acknowledgement.reason or None)
    return history.Acknowledge(
        (entry.topic, entry.partition),
        entry.client_lock_id,
        verb,
        None if ranges is None else tuple((start, end) for start, end in ranges),
        result,
        detail,
    )
