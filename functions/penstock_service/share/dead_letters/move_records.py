"""Move records to another topic: an append and an update of who is done with them, both or neither.

That is a share group's item, a subscription's state in a partition, or the runs of schedules.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import BATCH_DECODED_BYTES_MAX, MOVED_BYTES_MAX
from penstock_core.log.topic import Topic
from penstock_core.outcomes import errors_maybe_applied
from penstock_core.records.codec import BatchBuilder, NewRecord
from penstock_core.records.record_batch import Compression, validate
from penstock_core.transaction import DeliveryCommit, Move, MoveOutcome, ShareCommit
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.records.append import PartitionBatches, put_batches
from penstock_service.records.shorten_head import GrownHead, shorten_heads
from penstock_service.records.wake_readers import wake_beside, wake_blindly, wake_ups_of_heads
from penstock_service.segments.put_segment import check_in_sync, is_inline

if TYPE_CHECKING:
    from penstock_core.schedules.schedule import ScheduleRun


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedRecords:
    """One batch for a partition of a topic. `may_expire`: a record has the header of an expiry."""

    topic: Topic
    key: PartitionKey
    data: bytes
    may_expire: bool = False


def encoded(records: Sequence[NewRecord]) -> bytes | None:
    """One batch of all, empty for no records. None if it is larger than a reader decodes, or than `MOVED_BYTES_MAX`.

    These bounds are above those of any topic, but headers are added, and a producer may compress better.
    """
    if not records:
        return b""
    builder = BatchBuilder(Compression.ZSTD, batch_bytes=BATCH_DECODED_BYTES_MAX)
    for each in records:
        if not builder.append(*each) or builder.size_bytes > BATCH_DECODED_BYTES_MAX:
            return None
    data = builder.build()
    return data if len(data) <= MOVED_BYTES_MAX else None


def move_records(
    instance: Instance,
    moved: Sequence[MovedRecords],
    done: "ShareCommit | DeliveryCommit | Sequence[ScheduleRun]",
    window: UpdateWindow,
) -> MoveOutcome:
    """Append the batches and update the item at once. Not applied if the update was refused: nothing was appended then.

    `window` was opened before the records were read. One put per zone, one transaction, one read of the heads,
    and what `shorten_heads` and `wake_beside` cost. Raises NOT_ENOUGH_ZONES, UNKNOWN_PARTITION if a topic is gone, and
    the errors of storage.
    """
    batches = [
        PartitionBatches(
            key=each.key,
            data=each.data,
            summary=validate(each.data),
            min_insync_zones=each.topic.config.min_insync_zones,
            may_expire=each.may_expire,
        )
        for each in moved
    ]
    if not is_inline(instance, len(batches), sum(len(each.data) for each in batches)):
        check_in_sync(instance, instance.zone_cache.get(), max(each.min_insync_zones for each in batches))
    stored, refs = put_batches(instance, batches, Acks.QUORUM)
    keys = [each.key for each in moved]
    move = Move(
        shares=[done] if isinstance(done, ShareCommit) else [],
        deliveries=[done] if isinstance(done, DeliveryCommit) else [],
        runs=done if isinstance(done, Sequence) else [],
        refs={key: [ref] for key, ref in zip(keys, refs, strict=True)},
        unconfirmed=dict.fromkeys(keys, stored.unconfirmed_zones),
    )
    window.check()
    try:
        outcome = instance.stores.transactions.move(move)
        after = UpdateWindow.open(instance.clock)
        with errors_maybe_applied(has_begun=outcome.is_applied or outcome.maybe_applied):
            heads = instance.stores.log.heads(keys)
    except PenstockError as error:
        if error.maybe_applied:
            wake_blindly(instance, keys)
        raise
    grown = [GrownHead(key=key, head=head) for key, head in heads.items()]
    # Also after a refusal: the first attempt of the call may have been applied.
    wake_beside(instance, wake_ups_of_heads(heads), lambda: shorten_heads(instance, after, grown))
    return outcome
