"""Read the records of an acquire's locks, and give back what cannot be handed over.

| the records                                  | what becomes of them                                          |
|----------------------------------------------|---------------------------------------------------------------|
| were read, and fit into the answer           | are handed over                                               |
| do not fit into the answer                   | go back at once, uncounted                                    |
| were removed by retention or truncation      | are finished: they have expired                               |
| cannot be read for a moment                  | go back for the first pause, uncounted                        |
| are damaged or missing in every zone         | go back for the longest pause, uncounted, and are counted     |

One update does all of it for one partition, before the answer: a client must know each record that is locked for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import LockNonce
from penstock_core.limits import SHARE_UNREAD_PAUSE_MS
from penstock_core.share.acknowledge import Acknowledgement, AckType
from penstock_core.share.acquire import Grant, grants
from penstock_core.share.record_set import Range, Ranges, RecordSet, normalized
from penstock_core.share.share_codec import client_lock_id
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import ShareState, locks_of
from penstock_service.instance.instance import Instance
from penstock_service.segments.read_range import is_missing
from penstock_service.share.acknowledge import acknowledge_partition
from penstock_service.share.look_through import Taken
from penstock_service.share.read_batches import FoundBatches, StoredBatch, WantedRecords, read_batches
from penstock_service.share.share_partitions import SharePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedLock:
    """One lock of an acquire, and the batches that hold its records. They may hold others, too."""

    partition: SharePartition
    grant: Grant
    batches: Sequence[StoredBatch]

    @property
    def client_lock_id(self) -> str:
        """The lock id that the client gets."""
        return client_lock_id(self.grant.lock_id, self.grant.lock, self.grant.generation)

    @property
    def ranges(self) -> Ranges:
        """The records under the lock."""
        return self.grant.records.ranges

    @property
    def length(self) -> int:
        """The bytes of the batches."""
        return sum(len(batch.data) for batch in self.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedPartition:
    """The locks of an acquire in one partition, and the state that shows them."""

    partition: SharePartition
    state: ShareState
    locks: Sequence[HandedLock]


def hand_over(
    instance: Instance, config: ShareGroupConfig, taken: Sequence[Taken], nonce: LockNonce, bytes_max: int
) -> list[HandedPartition]:
    """The locks with their batches, `bytes_max` at most, except that the first batch of all is always there.

    Costs what `read_batches` costs, and one update for each partition of which something goes back.
    """
    taken = _with_new_heads(instance, taken)
    wanted = [
        WantedRecords(key=each.partition.key.partition_key, head=each.partition.head, ranges=_ranges(each.grants))
        for each in taken
    ]
    handed: list[HandedPartition] = []
    for each, found in zip(taken, read_batches(instance, wanted), strict=True):
        kept, too_many = _within(found, _ranges(each.grants), bytes_max, is_first=not handed)
        bytes_max -= sum(len(batch.data) for batch in kept)
        found = replace(found, batches=kept, left_out=normalized((*found.left_out, *too_many)))
        back = [*_given_back(instance, config, each, found)]
        done = give_back(instance, config, each.partition, each.state, back, nonce)
        handed.append(with_batches(each.partition, done, nonce, kept))
    return handed


def give_back(
    instance: Instance,
    config: ShareGroupConfig,
    partition: SharePartition,
    state: ShareState,
    acknowledgements: Sequence[Acknowledgement],
    nonce: LockNonce,
) -> ShareState:
    """The state after these records have left the locks of the acquire; `state` if there are none."""
    if not acknowledgements:
        return state
    done = acknowledge_partition(instance, config, partition.key, acknowledgements, state)
    if done.state is not None:
        return done.state
    gone = locks_of(state, nonce)  # with the whole state: the group was deleted
    return replace(state, locks={name: lock for name, lock in state.locks.items() if name not in gone})


def with_batches(
    partition: SharePartition, state: ShareState, nonce: LockNonce, batches: Sequence[StoredBatch]
) -> HandedPartition:
    """The locks that the state has of the acquire, each with its batches."""
    return HandedPartition(
        partition=partition,
        state=state,
        locks=[
            HandedLock(
                partition=partition,
                grant=grant,
                batches=[batch for batch in batches if grant.records.only((span_of(batch),)).ranges],
            )
            for grant in grants(state, nonce)
        ],
    )


def span_of(batch: StoredBatch) -> Range:
    """The offsets that the batch covers."""
    return batch.base_offset, batch.next_offset


def _with_new_heads(instance: Instance, taken: Sequence[Taken]) -> list[Taken]:
    """A head is read beside its state, and may be older: then it does not cover records that come again."""
    stale = [each.partition.key.partition_key for each in taken if _end(each) > each.partition.head.next_offset]
    heads = instance.stores.log.heads(stale) if stale else {}
    return [
        replace(each, partition=replace(each.partition, head=heads[each.partition.key.partition_key]))
        if each.partition.key.partition_key in heads
        else each
        for each in taken
    ]


def _end(taken: Taken) -> int:
    return max(each.records.end for each in taken.grants)


def _ranges(found: Sequence[Grant]) -> Ranges:
    return normalized(span for each in found for span in each.records.ranges)


def _within(found: FoundBatches, ranges: Ranges, bytes_max: int, *, is_first: bool) -> tuple[list[StoredBatch], Ranges]:
    """The batches that fit, and the records of the others."""
    kept: list[StoredBatch] = []
    for batch in found.batches:
        bytes_max -= len(batch.data)
        if bytes_max < 0 and not (is_first and not kept):
            break
        kept.append(batch)
    others = normalized(map(span_of, found.batches[len(kept) :]))
    return kept, RecordSet(ranges).only(others).ranges


def _given_back(
    instance: Instance, config: ShareGroupConfig, taken: Taken, found: FoundBatches
) -> Iterator[Acknowledgement]:
    """The acknowledgements for records that cannot be handed over, in the order of the locks."""
    if found.unreadable:
        instance.telemetry.log(
            "share_records_unreadable",
            partition=str(taken.partition.key.partition_key),
            offset=found.unreadable[0][0],
            error=str(found.error),
        )
    for each in taken.grants:
        for ranges, kind, delay_ms in (
            (found.removed, AckType.ACCEPT, None),
            (found.left_out, AckType.RELEASE, 0),
            (found.unreadable, AckType.RELEASE, _pause_ms(config, found.error)),
        ):
            mine = each.records.only(ranges).ranges
            if mine:
                yield Acknowledgement(
                    lock_id=each.lock_id,
                    type=kind,
                    offsets=mine,
                    delay_ms=delay_ms,
                    is_uncounted=kind is AckType.RELEASE,
                )


def _pause_ms(config: ShareGroupConfig, error: PenstockError | None) -> int:
    """A zone that does not answer may do so soon. Bytes that are lost or damaged stay so until an operator acts."""
    if error is not None and error.code is ErrorCode.STORAGE_UNAVAILABLE and not is_missing(error):
        return max(config.retry_backoff_ms_min, SHARE_UNREAD_PAUSE_MS)
    return max(config.retry_backoff_ms_max, SHARE_UNREAD_PAUSE_MS)
