"""Produce within the quotas of the caller and of the topics: what is over one is refused before anything is stored."""

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.outcomes import Outcome, Outcomes
from penstock_core.quotas.quota import Rate, Subject
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.instance.quota_shares import ReservedBytes
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.quotas.admit import (
    Spender,
    admit,
    count_throttled,
    give_back,
    principal_spender,
    released_on_error,
    reserve_bytes,
    topic_spender,
)
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


def produce_within_quotas(
    instance: Instance, principal: str, entries: Sequence[ProduceEntry], acks: Acks
) -> Outcomes[Produced]:
    """One result per entry, in order. Entries of a topic over its quota fail alone: THROTTLED, or QUOTA_EXCEEDED.

    Raises THROTTLED if the principal is over its quota, and the first error if all entries' topics are. Costs what
    `take_share` and `reserve_bytes` cost for each quota, and what `produce_or_schedule` costs.
    """
    refused, reserved = admit_produce(instance, principal, entries)
    if not refused and not reserved:
        return produce_or_schedule(instance, entries, acks)
    if len(refused) == len(entries):
        raise refused[0]
    passed = [index for index in range(len(entries)) if index not in refused]
    results: dict[int, Outcome[Produced]] = {**refused}
    with released_on_error(instance, reserved.values()):
        done = produce_or_schedule(instance, [entries[index] for index in passed], acks)
    results.update(zip(passed, done, strict=True))
    for index in passed:
        held = reserved.get(entries[index].topic)
        if held is not None and isinstance(results[index], PenstockError):
            instance.stored_bytes.release(held, len(entries[index].data))
    return Outcomes([results[index] for index in range(len(entries))])


def admit_produce(
    instance: Instance, principal: str, entries: Sequence[ProduceEntry]
) -> tuple[dict[int, PenstockError], dict[str, ReservedBytes]]:
    """Takes the entries of the quotas. Gives the errors of those whose topics are over theirs, by their places.

    Gives also the stored bytes that it has reserved, by topic. The principal gets back what refused entries would have
    spent. Raises THROTTLED if it is over its quota itself.
    """
    caller, sizes = principal_spender(principal), _sizes(entries)
    try:
        admit(instance, caller, _produce_of(sizes.total()))
    except PenstockError as spent:
        count_throttled(instance, [entry.topic for entry in entries], spent)
        raise
    refused: dict[str, PenstockError] = {}
    reserved: dict[str, ReservedBytes] = {}
    if not instance.quota_cache.has_quotas(Subject.TOPIC):
        return {}, reserved
    for name, size in sizes.items():
        try:
            held = _admit_topic(instance, name, size)
        except PenstockError as error:
            refused[name] = error
            count_throttled(instance, [entry.topic for entry in entries if entry.topic == name], error)
        else:
            if held is not None:
                reserved[name] = held
    if refused:
        left_out = sum(sizes[name] for name in refused)
        is_all = len(refused) == len(sizes)
        give_back(instance, caller, {Rate.PRODUCE_REQUESTS: int(is_all), Rate.PRODUCE_BYTES: left_out})
    return {index: refused[entry.topic] for index, entry in enumerate(entries) if entry.topic in refused}, reserved


def _admit_topic(instance: Instance, name: str, size: int) -> ReservedBytes | None:
    """Takes the bytes of the topic's quotas, all or none: first of its rates, last of what it may hold."""
    spender = topic_spender(instance, name)
    if spender is None:
        return None
    admit(instance, spender, _produce_of(size))
    try:
        return reserve_bytes(instance, spender, size)
    except PenstockError:
        give_back(instance, spender, _produce_of(size))
        raise


def admit_whole(instance: Instance, principal: str, entries: Sequence[ProduceEntry]) -> list[ReservedBytes]:
    """Takes the entries of the quotas, all or none. Raises THROTTLED or QUOTA_EXCEEDED for the first that is spent.

    Gives the stored bytes that it has reserved: the caller releases them if it stores nothing.
    """
    sizes = _sizes(entries)
    demands = [(principal_spender(principal), sizes.total())]
    if instance.quota_cache.has_quotas(Subject.TOPIC):
        found = [(topic_spender(instance, name), size) for name, size in sizes.items()]
        demands += [(spender, size) for spender, size in found if spender is not None]
    taken: list[tuple[Spender, int]] = []
    reserved: list[ReservedBytes] = []
    try:
        with released_on_error(instance, reserved):
            for spender, size in demands:
                admit(instance, spender, _produce_of(size))
                taken.append((spender, size))
            for topic, size in demands[1:]:
                if (held := reserve_bytes(instance, topic, size)) is not None:
                    reserved.append(held)
    except PenstockError as error:
        for spender, size in taken:
            give_back(instance, spender, _produce_of(size))
        count_throttled(instance, [entry.topic for entry in entries], error)
        raise
    return reserved


def _sizes(entries: Sequence[ProduceEntry]) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for entry in entries:
        sizes[entry.topic] += len(entry.data)
    return sizes


def _produce_of(size: int) -> dict[Rate, int]:
    return {Rate.PRODUCE_REQUESTS: 1, Rate.PRODUCE_BYTES: size}


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
