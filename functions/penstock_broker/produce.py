"""Produce: check what was sent, append what is right, tell the rest why not."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_broker.append import Appended, PartitionBatches, append, head_is_gone
from penstock_broker.broker import Broker
from penstock_broker.put_segment import check_in_sync
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import REQUEST_PARTITIONS_MAX
from penstock_core.quorum import Acks
from penstock_core.record_batch import validate


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceEntry:
    """Batches for one topic-partition as they came, not yet checked."""

    topic: str
    partition: int
    data: memoryview | bytes


def produce(broker: Broker, entries: Sequence[ProduceEntry], acks: Acks) -> list[Appended | PenstockError]:
    """One result per entry, in order; a bad entry does not fail its neighbours.

    Records are neither decoded nor rewritten: the work is per batch. Costs what `append` costs; topics are read only
    when they are not remembered. Raises INVALID_REQUEST for a topic-partition that stands twice or too many of them,
    NOT_ENOUGH_ZONES and STORAGE_UNAVAILABLE for the request as a whole.
    """
    check_entries(entries)
    checked = [check_entry(broker, entry) for entry in entries]
    _raise_if_none_has_zones(checked)
    results = _append_checked(broker, checked, acks)
    gone = [index for index, result in enumerate(results) if head_is_gone(result) and checked[index] is not result]
    if gone:
        # The topic was deleted, and perhaps created again, since it was looked up: ask once more what the name means.
        for index in gone:
            broker.directory.forget(entries[index].topic)
        checked_again = [check_entry(broker, entries[index]) for index in gone]
        again: Sequence[Appended | PenstockError]
        try:
            again = _append_checked(broker, checked_again, acks)
        except PenstockError as error:  # of these only: their neighbours have been appended
            again = [error] * len(gone)
        for index, result in zip(gone, again, strict=True):
            results[index] = result
    return results


def _append_checked(
    broker: Broker, checked: Sequence[PartitionBatches | PenstockError], acks: Acks
) -> list[Appended | PenstockError]:
    good = [batches for batches in checked if not isinstance(batches, PenstockError)]
    appended = iter(append(broker, good, acks) if good else ())
    return [batches if isinstance(batches, PenstockError) else next(appended) for batches in checked]


def check_entry(broker: Broker, entry: ProduceEntry) -> PartitionBatches | PenstockError:
    """The entry's batches, if they are right and their partition exists, else why not. Reads the topic if it is not
    remembered."""
    try:
        topic, key = broker.directory.find_partition(entry.topic, entry.partition)
        summary = validate(entry.data)
        limit = topic.config.max_batch_bytes
        if summary.largest_batch_bytes > limit:
            raise PenstockError(
                ErrorCode.RECORD_TOO_LARGE,
                f"a batch of {summary.largest_batch_bytes} bytes is over topic {topic.name!r}'s max_batch_bytes="
                f"{limit}: send smaller batches or records, or raise the setting",
                limit=limit,
            )
        check_in_sync(broker, broker.zone_directory.find(), topic.config.min_insync_zones)
    except PenstockError as error:
        return error
    return PartitionBatches(key=key, data=entry.data, summary=summary, min_insync_zones=topic.config.min_insync_zones)


def _raise_if_none_has_zones(checked: Sequence[PartitionBatches | PenstockError]) -> None:
    """What is true of all entries is the answer to the request, with Retry-After."""
    refused = [
        entry for entry in checked if isinstance(entry, PenstockError) and entry.code is ErrorCode.NOT_ENOUGH_ZONES
    ]
    if len(refused) == len(checked):
        raise refused[0]


def check_entries(entries: Sequence[ProduceEntry]) -> None:
    """Raises INVALID_REQUEST for none, too many of them, or a topic-partition that stands twice."""
    if not entries or len(entries) > REQUEST_PARTITIONS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{len(entries)} topic-partitions in one produce: send 1 to {REQUEST_PARTITIONS_MAX}",
        )
    seen: set[tuple[str, int]] = set()
    for entry in entries:
        if (entry.topic, entry.partition) in seen:
            raise PenstockError(
                ErrorCode.INVALID_REQUEST,
                f"partition {entry.partition} of topic {entry.topic!r} stands twice in one produce: "
                "put its batches one after the other into one entry",
            )
        seen.add((entry.topic, entry.partition))
