"""Produce: check each entry, append the right ones, and answer each wrong one with its error."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock_core.errors import Category, ErrorCode, PenstockError, shown
from penstock_core.ids import PartitionKey, parse_own_topic_name
from penstock_core.limits import REQUEST_PARTITIONS_MAX, VALIDATED_BYTES_MAX
from penstock_core.log.retention_raise import kept_days
from penstock_core.log.timer import TimerPlace
from penstock_core.outcomes import Outcome, Outcomes, as_maybe_applied
from penstock_core.records.producer_state import SERVICE_OWNER
from penstock_core.records.record_batch import validate
from penstock_core.zones.zone_state import Acks
from penstock_service.index.heads import still_closed
from penstock_service.instance.instance import Instance
from penstock_service.records.append import AppendedRange, PartitionBatches, append, is_head_closed, is_head_gone
from penstock_service.segments.put_segment import check_in_sync, is_inline, item_days

if TYPE_CHECKING:
    from penstock_core.records.codec import Record
    from penstock_core.records.record_check import DecodeBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceEntry:
    """Batches for one topic-partition as they came, not yet checked.

    Delayed batches have a `timer`: their due time, and the id that their client has drawn.
    """

    topic: str
    partition: int
    data: memoryview | bytes
    is_own_encoding: bool = False  # the service's own codec made the batches: `validate_records` need not look
    tag_filter: int | None = None  # of all records, as the producer says
    may_expire: bool = False  # the producer has seen the header of an expiry
    timer: TimerPlace | None = None
    owner: bytes = SERVICE_OWNER  # of the producer ids in the batches


def produce(instance: Instance, entries: Sequence[ProduceEntry], acks: Acks) -> Outcomes[AppendedRange]:
    """One result per entry, in order. An entry that is wrong does not fail its neighbours. None is delayed.

    Records are not rewritten, nor decoded save for topics with `validate_records`: the work is per batch. Costs what
    `append` costs, and one read for each topic that is not remembered. Raises INVALID_REQUEST for no entries, too many
    of them or a topic-partition that is named twice. Raises NOT_ENOUGH_ZONES and STORAGE_UNAVAILABLE for the request as
    a whole.
    """
    check_entries(entries)
    budget = RecordBudget()
    needs_zones = not are_inline(instance, entries)
    checked = Outcomes.collect(lambda entry: check_entry(instance, entry, budget, needs_zones=needs_zones), entries)
    _raise_if_none_has_zones(checked)
    results = checked.map_all_ok(lambda batches: append(instance, batches, acks))
    refusals = {
        index: refusal_now(instance, entries[index].topic, batches.key, result)
        for index, (batches, result) in enumerate(zip(checked, results, strict=True))
        if isinstance(batches, PartitionBatches) and isinstance(result, PenstockError)
    }
    results = results.merge({index: error for index, error in refusals.items() if error is not None})
    refused = [index for index, error in refusals.items() if error is None]
    if not refused:
        return results
    checked_again = Outcomes.collect(
        lambda index: check_entry(instance, entries[index], budget, needs_zones=needs_zones), refused
    )
    try:
        again = checked_again.map_all_ok(lambda batches: append(instance, batches, acks))
    except PenstockError as error:  # for these entries only: their neighbours have been appended
        again = Outcomes([error] * len(refused))
    return results.merge({at: _told_again(results[at], each) for at, each in zip(refused, again, strict=True)})


def _told_again(refusal: Outcome[AppendedRange], again: Outcome[AppendedRange]) -> Outcome[AppendedRange]:
    """The outcome of the second try at an append. An attempt of the refused first one may still come."""
    is_unsure = isinstance(refusal, PenstockError) and refusal.maybe_applied
    return as_maybe_applied(again) if is_unsure and isinstance(again, PenstockError) else again


def refusal_now(instance: Instance, topic_name: str, key: PartitionKey, error: PenstockError) -> PenstockError | None:
    """The error of an append as it is. None if only an old view of the topic was refused: another try may succeed.

    Costs what `still_closed` costs after a refusal by a closed head.
    """
    if is_head_gone(error):
        # The topic was deleted, and perhaps created again, since it was looked up: ask once more what the name means.
        instance.topic_cache.forget(topic_name)
        return None
    if not is_head_closed(error):
        return error
    try:
        refusal = still_closed(instance, topic_name, key)
    except PenstockError as failure:
        if failure.code in (ErrorCode.MIRRORED, ErrorCode.MOVED) and not error.maybe_applied:
            return failure
        if error.maybe_applied or failure.code.category is Category.NOT_FOUND:
            return error
        # Nothing was appended, and which partitions take records is not known now: another try may tell.
        return PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"{error.message}. It is not known which: {failure}")
    return as_maybe_applied(refusal) if refusal is not None and error.maybe_applied else refusal


class RecordBudget:
    """What one request may decode for `validate_records`. It loads the codec with the first such topic."""

    __slots__ = ("_budget",)

    def __init__(self) -> None:
        self._budget: DecodeBudget | None = None

    def check(self, data: memoryview | bytes, *, needs_keys: bool) -> tuple[int, bool]:
        """Decode the batches. Returns the tag filter of their records, and whether one of them may expire.

        Raises as `check_records` and `check_expiry`.
        """
        from penstock_core.filters.filter import tags_of
        from penstock_core.records.expiry import check_expiry, has_expiry
        from penstock_core.records.record_check import (
            DecodeBudget,  # the codec, which other topics do not need
            check_records,
        )

        if self._budget is None:
            self._budget = DecodeBudget(VALIDATED_BYTES_MAX)
        bits, may_expire = 0, False

        def note(record: "Record") -> None:
            nonlocal bits, may_expire
            bits |= tags_of(record.headers)
            if has_expiry(record.headers):
                check_expiry(record.headers)
                may_expire = True

        check_records(data, self._budget, note, needs_keys=needs_keys)
        return bits, may_expire


def are_inline(instance: Instance, entries: Sequence[ProduceEntry]) -> bool:
    """True if the entries of now go into DynamoDB together. So do any of them without the others.

    Reads topics that are not remembered, where the bounds differ and the answer depends on them.
    """
    now = [entry for entry in entries if entry.timer is None]
    size = len(now), sum(len(entry.data) for entry in now)
    if is_inline(instance, *size) == is_inline(instance, *size, kept_days=1):
        return is_inline(instance, *size)
    topics = Outcomes.collect(lambda entry: instance.topic_cache.get(entry.topic), now).ok  # others have no batches
    return is_inline(instance, *size, kept_days=item_days(instance, map(kept_days, topics)))


def check_entry(
    instance: Instance, entry: ProduceEntry, budget: RecordBudget, *, needs_zones: bool = True
) -> PartitionBatches:
    """The entry's batches, checked. Reads the topic if it is not remembered.

    Without `needs_zones`, it does not ask which zones are in sync: the records go into none.

    The tag filter is kept for topics with `index_tags`. Where `validate_records` is on, it is checked, or made, as the
    flag of records that may expire is. There a record for a compacted topic needs a key.
    Raises INVALID_NAME, UNKNOWN_TOPIC, UNKNOWN_PARTITION, RECORD_TOO_LARGE, NOT_ENOUGH_ZONES, and the errors of
    `validate` and `check_records`.
    """
    topic_read = instance.topic_cache.read_moment(entry.topic)  # first: another thread may read the topic anew
    topic, key = instance.topic_cache.get_partition(parse_own_topic_name(entry.topic), entry.partition)
    summary = validate(entry.data)
    limit = topic.config.max_batch_bytes
    if summary.largest_batch_bytes > limit:
        raise PenstockError(
            ErrorCode.RECORD_TOO_LARGE,
            f"a batch of {summary.largest_batch_bytes} bytes is over topic {topic.name!r}'s max_batch_bytes="
            f"{limit}: send smaller batches or records, or raise the setting",
            limit=limit,
        )
    tag_filter, may_expire = entry.tag_filter, entry.may_expire
    if topic.config.validate_records and not entry.is_own_encoding:
        found, may_expire = budget.check(entry.data, needs_keys=topic.config.is_compacted)
        if tag_filter not in (None, found):
            raise PenstockError(
                ErrorCode.CORRUPT_BATCH,
                f"tag_filter={tag_filter:016x}, and the records' tags make {found:016x}: compute it anew, or leave it "
                f"out; topic {topic.name!r} has validate_records",
            )
        tag_filter = found
    if needs_zones and entry.timer is None:  # a delayed segment lies in no zone
        check_in_sync(instance, instance.zone_cache.get(), topic.config.min_insync_zones)
    return PartitionBatches(
        key=key,
        data=entry.data,
        summary=summary
        if summary.sequence is None
        else replace(summary, sequence=replace(summary.sequence, owner=entry.owner)),
        min_insync_zones=topic.config.min_insync_zones,
        tag_filter=tag_filter if topic.config.index_tags else None,
        may_expire=may_expire,
        is_draining=not topic.is_writable(key.partition),
        kept_days=kept_days(topic),
        topic_read=topic_read,
    )


def check_entries(entries: Sequence[ProduceEntry]) -> None:
    """Raise INVALID_REQUEST for no entries, too many of them, or a topic-partition that is named twice.

    Delayed batches of one topic-partition may be in as many entries as they have timers.
    """
    if not entries or len(entries) > REQUEST_PARTITIONS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{len(entries)} topic-partitions in one produce: send 1 to {REQUEST_PARTITIONS_MAX}",
        )
    seen: set[tuple[str, int, TimerPlace | None]] = set()
    for entry in entries:
        if (entry.topic, entry.partition, entry.timer) in seen:
            raise PenstockError(
                ErrorCode.INVALID_REQUEST,
                f"partition {entry.partition} of topic {shown(entry.topic)} stands twice in one produce: "
                "put its batches one after the other into one entry",
            )
        seen.add((entry.topic, entry.partition, entry.timer))


def _raise_if_none_has_zones(checked: Outcomes[PartitionBatches]) -> None:
    """If all entries lack zones, that error is the answer to the request, with Retry-After."""
    refused = [error for error in checked.errors if error.code is ErrorCode.NOT_ENOUGH_ZONES]
    if len(refused) == len(checked):
        raise refused[0]
