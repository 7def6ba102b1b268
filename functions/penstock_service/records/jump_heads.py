"""Let the partitions of a restored topic go on behind every offset that was ever given (docs/adr/0078).

```
 topic: was_restored ▶ a segment with an empty batch for each head ▶ each head: its jump, if it still ends where it did
```
The step may end anywhere, and you may make it again: a head tells which restore it has jumped for. It jumps once more
if the harmed head has given offsets since. Writers begin after it. They would not lose anything if they ran, but a jump
is refused where an append has come between.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey
from penstock_core.limits import BATCH_GET_KEYS_MAX, JUMP_MARGIN_OFFSETS
from penstock_core.log.index import Head, HeadJump, Jump, jumps_over
from penstock_core.log.ref import Ref
from penstock_core.log.retention_raise import with_raise
from penstock_core.log.topic import Topic
from penstock_core.mirror.push import LOG_ID_BYTES
from penstock_core.records.codec import empty_batch
from penstock_core.records.record_batch import BatchesSummary
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.ports.log import LogIndex
from penstock_service.records.append import PartitionBatches, put_batches
from penstock_service.records.shorten_head import GrownHead, shorten_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionJump:
    """The jump `[start, end)` of one partition. `is_lost`: the harmed table has no head that tells where it ended.

    `was_done`: an earlier call has made it.
    """

    partition: Partition
    start: Offset
    end: Offset
    is_lost: bool
    was_done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    key: PartitionKey
    next_offset: Offset
    jumps: tuple[Jump, ...]
    is_lost: bool
    was_done: bool
    has_name: bool

    def told(self) -> PartitionJump:
        return PartitionJump(
            partition=self.key.partition,
            start=self.jumps[0].start,
            end=self.jumps[-1].end,
            is_lost=self.is_lost,
            was_done=self.was_done,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """A restore of the tables. A head jumps for each `restore_id`, and again if its harmed head has grown since.

    `harmed` has the heads as they were harmed, None if they are lost. A dry run only reads.
    """

    restore_id: str
    harmed: LogIndex | None
    is_dry_run: bool = False


def jump_heads(instance: Instance, topic: Topic, restore: Restore) -> Iterator[PartitionJump]:
    """Yields the jump of each partition of the topic, those that went too, once it is made.

    For 100 partitions it costs two reads, one put for each zone, and one update of each head. One update of the topic.
    Raises CONCURRENT_UPDATE if a writer has appended meanwhile, or altered the topic: stop it, and call again.
    """
    window = UpdateWindow.open(instance.clock)
    if not restore.is_dry_run:
        window.check()
        noted = with_raise(replace(topic, was_restored=True), instance.clock.now_ms())
        instance.stores.topics.replace(topic, noted)
        instance.topic_cache.forget(topic.name)
    keys = [PartitionKey(topic.topic_id, number) for number in topic.all_heads()]
    for start in range(0, len(keys), BATCH_GET_KEYS_MAX):
        yield from _jump_some(instance, keys[start : start + BATCH_GET_KEYS_MAX], restore)


def _jump_some(instance: Instance, keys: Sequence[PartitionKey], restore: Restore) -> list[PartitionJump]:
    window = UpdateWindow.open(instance.clock)
    harmed = {} if restore.harmed is None else restore.harmed.heads(keys)
    heads = instance.stores.log.heads(keys)
    plans = [
        _plan(key, heads[key], harmed.get(key), restore.restore_id)
        for key in keys
        if key in heads and not _is_moved(key, heads[key], harmed.get(key))
    ]
    wanted = [each for each in plans if not each.was_done]
    if wanted and not restore.is_dry_run:
        refs, unconfirmed_zones = _put(instance, wanted)

        def jump(plan: _Plan) -> GrownHead:
            move = HeadJump(
                seen_next_offset=plan.next_offset,
                jumps=plan.jumps,
                refs=tuple(refs[plan.key]),
                restore=restore.restore_id,
                # Its mirrors must not take it for the log that they hold (docs/protocol/mirrors).
                log_id=instance.entropy.random_bytes(LOG_ID_BYTES).hex() if plan.has_name else "",
            )
            window.check()
            _, head = instance.stores.log.jump(plan.key, move, unconfirmed_zones)
            if head is None or plan.jumps[-1] not in head.jumps:
                raise PenstockError(
                    ErrorCode.CONCURRENT_UPDATE,
                    f"partition {plan.key} has got records meanwhile: stop all writers, and run the restore again",
                )
            return GrownHead(key=plan.key, head=head, added_refs=len(plan.jumps))

        shorten_heads(instance, window, instance.executor.map(jump, wanted).all_ok())
    return [each.told() for each in plans]


def _is_moved(key: PartitionKey, head: Head, harmed: Head | None) -> bool:
    """True if the log was moved to its mirror, and has given no offset since. Raises CONCURRENT_UPDATE if it may have.

    The end of a moved log is where its mirror goes on.
    """
    if head.move and (harmed is None or harmed.next_offset != head.next_offset):
        raise PenstockError(
            ErrorCode.CONCURRENT_UPDATE,
            f"partition {key} is moved, and was not when it was harmed: reopen its topic with `penstock mirrors reopen "
            "--mirror-lost`, and run the restore again",
        )
    return bool(head.move)


def _plan(key: PartitionKey, head: Head, harmed: Head | None, restore_id: str) -> _Plan:
    harmed_next_offset = None if harmed is None else harmed.next_offset
    # A writer that ran on since the jump has used up some of its margin, or has given offsets behind it.
    was_done = head.restore == restore_id and (harmed_next_offset or 0) <= head.jumps[-1].end - JUMP_MARGIN_OFFSETS
    jumps = head.jumps[-1:] if was_done else jumps_over(head.next_offset, harmed_next_offset)
    return _Plan(
        key=key,
        next_offset=head.next_offset,
        jumps=jumps,
        is_lost=harmed is None,
        was_done=was_done,
        has_name=bool(head.log_id),
    )


def _put(instance: Instance, plans: Sequence[_Plan]) -> tuple[Mapping[PartitionKey, list[Ref]], int]:
    """A ref for each piece of each jump, and the zones that lack some. One segment for the first pieces of all."""
    refs: dict[PartitionKey, list[Ref]] = {plan.key: [] for plan in plans}
    unconfirmed_zones = 0
    for number in range(max(len(plan.jumps) for plan in plans)):
        pieces = [(plan.key, plan.jumps[number]) for plan in plans if number < len(plan.jumps)]
        stored, found = put_batches(instance, [_empty(*each) for each in pieces], Acks.QUORUM)
        unconfirmed_zones |= stored.unconfirmed_zones
        for (key, _), ref in zip(pieces, found, strict=True):
            refs[key].append(ref)
    return refs, unconfirmed_zones


def _empty(key: PartitionKey, jump: Jump) -> PartitionBatches:
    data = empty_batch(jump.end - jump.start)
    summary = BatchesSummary(
        record_count=0,
        offset_span=jump.end - jump.start,
        max_timestamp_ms=-1,
        batch_count=1,
        largest_batch_bytes=len(data),
    )
    return PartitionBatches(key=key, data=data, summary=summary, tag_filter=0)
