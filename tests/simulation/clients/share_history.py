"""What workers of a share group ask and are told, for the history: the history checker judges it (G11)."""

from collections.abc import Sequence

from penstock_core.ids import LockNonce
from penstock_core.records.codec import decode
from penstock_core.share.acknowledge import AckType
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_group import ShareGroupConfig
from penstock_service.share.acknowledge import AckEntry, AckOutcome
from penstock_service.share.acquire.acquire import Acquired
from tests.history import format as history
from tests.history.recorder import OpenOperation, Recorder


class ShareRecord:
    """Records the requests to one share group, whose locks last for `lock_ms` where nothing else is said."""

    def __init__(self, recorder: Recorder, group: str, lock_ms: int) -> None:
        self._recorder = recorder
        self._group = group
        self._lock_ms = lock_ms

    def made(self, topic: str, config: ShareGroupConfig) -> None:
        """The group was made with these settings."""
        share = history.Share(
            topics=(topic,),
            deliveries_max=config.deliveries_max,
            is_by_key=config.is_by_key,
            dead_letter_topic=config.dead_letter_topic,
        )
        self._recorder.done("share operator", history.Function.SHARE, [share], group=self._group)

    def asks(self, process: str, entries: Sequence[AckEntry], nonce: LockNonce | None = None) -> OpenOperation:
        """A request begins: an acquire if it has a nonce."""
        ops = [_acknowledge(entry, entry.acknowledgement.offsets, None, self._lock_ms) for entry in entries]
        if nonce is None:
            return self._recorder.invoke(process, history.Function.ACKNOWLEDGE, ops, group=self._group)
        named: list[history.MicroOp] = [history.Nonce(nonce), *ops]
        return self._recorder.invoke(process, history.Function.ACQUIRE, named, group=self._group)

    def is_told(
        self, operation: OpenOperation, outcomes: Sequence[AckOutcome], acquired: Acquired | None = None
    ) -> None:
        """The answer to a request."""
        told = [
            _acknowledge(each.entry, each.ranges, history.AckResult(each.result.value), self._lock_ms)
            for each in outcomes
        ]
        self._recorder.ok(operation, [*told, *([] if acquired is None else _locks(acquired))])


def _locks(acquired: Acquired) -> list[history.MicroOp]:
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
