"""Produce, with delayed entries among the others: append those of now, and schedule those of later."""

from collections.abc import Sequence
from typing import TypeAlias

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.outcomes import Outcome, Outcomes
from penstock_core.zones.quorum import Acks
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.records.append import AppendedRange, is_head_closed
from penstock_service.records.count_traffic import count_received
from penstock_service.records.produce import (
    ProduceEntry,
    RecordBudget,
    check_entries,
    check_entry,
    produce,
    refusal_now,
)
from penstock_service.records.schedule import DelayedBatches, ScheduledRecords, schedule

Produced: TypeAlias = AppendedRange | ScheduledRecords


def produce_or_schedule(instance: Instance, entries: Sequence[ProduceEntry], acks: Acks) -> Outcomes[Produced]:
    """One result per entry, in order: offsets, or the timer of a delayed entry. Wrong entries fail alone.

    Costs what `produce` costs for the entries of now. Delayed entries cost what `schedule` costs, and one read for each
    of their topics; `acks` are met by the archive, which keeps three copies. Raises as `produce`.
    """
    check_entries(entries)
    now = [index for index, entry in enumerate(entries) if entry.timer is None]
    later = [index for index, entry in enumerate(entries) if entry.timer is not None]
    results: dict[int, Outcome[Produced]] = {}
    if now:
        results.update(zip(now, produce(instance, [entries[index] for index in now], acks), strict=True))
    if later:
        scheduled = _schedule(instance, [entries[index] for index in later], is_alone=not now)
        results.update(zip(later, scheduled, strict=True))
    for index, result in results.items():
        count_received(instance, entries[index].topic, entries[index].data, result)
    return Outcomes([results[index] for index in range(len(entries))])


def check_delayed(instance: Instance, entry: ProduceEntry, budget: RecordBudget) -> DelayedBatches:
    """The entry's batches and their timer, checked. Raises as `check_entry`, and INVALID_REQUEST for a sequence."""
    if entry.timer is None:
        raise ValueError("the entry is not delayed")
    batches = check_entry(instance, entry, budget)
    if batches.summary.sequence is not None:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"delayed batches for partition {entry.partition} of topic {shown(entry.topic)} carry a producer's "
            "sequence: send them without producer id, because they arrive in another order",
        )
    return DelayedBatches(batches=batches, place=entry.timer)


def _schedule(instance: Instance, entries: Sequence[ProduceEntry], *, is_alone: bool) -> Outcomes[ScheduledRecords]:
    """Reads each topic anew: nothing refuses a record that would wait in vain, for a topic that was deleted.

    A partition that does not take records costs what `refusal_now` costs: the answer tells which do.
    """
    window = UpdateWindow.open(instance.clock)
    budget = RecordBudget()
    for name in {entry.topic for entry in entries}:
        instance.topic_cache.forget(name)
    checked = Outcomes.collect(lambda entry: check_delayed(instance, entry, budget), entries)
    failure: PenstockError
    try:
        results = checked.map_all_ok(lambda delayed: schedule(instance, window, delayed))
    except PenstockError as error:
        if is_alone:
            raise
        failure = error
        return checked.map_ok(lambda _: _raised(failure))  # for these entries: their neighbours have been appended
    refusals: dict[int, Outcome[ScheduledRecords]] = {}
    for index, (delayed, result) in enumerate(zip(checked, results, strict=True)):
        if isinstance(delayed, DelayedBatches) and is_head_closed(result) and isinstance(result, PenstockError):
            refusals[index] = refusal_now(instance, entries[index].topic, delayed.batches.key, result) or result
    return results.merge(refusals)


def _raised(error: PenstockError) -> ScheduledRecords:
    raise error
