"""The checks of what a target handled: wrong-filter, handled-late, handled-again and handled-before-start.

In ordered mode a target handles the records of a partition in order for the first time. Two invocations whose times
overlap have no order. A record comes again in two cases only. The answer may have been lost, by a disturbance between
the begins of both invocations. Or, in ordered mode, the answer has named an earlier record as failed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.history.format import Value
from tests.history.model.anomaly import Anomaly, Kind
from tests.history.push.facts import Invocation
from tests.history.push.subscribed_partition import SubscribedPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class _First:
    """The first time that a record was handled. `index` is its place among the records of its invocation."""

    value: Value
    index: int
    invocation: Invocation


def check_handlings(partition: SubscribedPartition) -> Iterator[Anomaly]:
    """Judge all that the target has handled of the partition."""
    yield from _filtered(partition)
    if partition.facts.push.is_ordered:
        yield from _late(partition)
    if partition.facts.push.is_complete:
        yield from _again(partition)
    if partition.facts.push.is_latest:
        yield from _before_start(partition)


def _filtered(partition: SubscribedPartition) -> Iterator[Anomaly]:
    ending = partition.facts.push.ending
    found = {} if ending is None else {offset: (value, by) for _, offset, value, by in partition.handlings()}
    for offset, (value, invocation) in sorted(found.items(), key=lambda each: each[0]):
        if not str(value).endswith(str(ending)):
            text = f"subscription {partition.name} of what ends with {ending!r} has handled {value!r}"
            yield partition.anomaly(Kind.WRONG_FILTER, text, (offset, value), lines=(invocation.line,))


def _late(partition: SubscribedPartition) -> Iterator[Anomaly]:
    """Goes from the last offset down, and compares each record with the one above that was handled first."""
    first: tuple[int, _First] | None = None
    for offset, each in sorted(_firsts(partition).items(), reverse=True):
        if first is not None and _is_before(first[1], each):
            text = (
                f"{each.value!r} at offset {offset} was handled for the first time after {first[1].value!r} at "
                f"{first[0]}, by subscription {partition.name}"
            )
            yield partition.anomaly(
                Kind.HANDLED_LATE,
                text,
                (offset, each.value),
                (first[0], first[1].value),
                lines=(first[1].invocation.line, each.invocation.line),
            )
        if first is None or _end(each) < _end(first[1]):
            first = offset, each


def _firsts(partition: SubscribedPartition) -> dict[int, _First]:
    firsts: dict[int, _First] = {}
    for index, offset, value, invocation in partition.handlings():
        known = firsts.get(offset)
        if known is None or invocation.end_ns < known.invocation.start_ns:
            firsts[offset] = _First(value=value, index=index, invocation=invocation)
    return firsts


def _is_before(one: _First, other: _First) -> bool:
    if one.invocation.line == other.invocation.line:
        return one.index < other.index
    return one.invocation.end_ns < other.invocation.start_ns


def _end(each: _First) -> tuple[int, int]:
    return each.invocation.end_ns, each.index


def _again(partition: SubscribedPartition) -> Iterator[Anomaly]:
    times: dict[tuple[int, Value], list[Invocation]] = {}
    for _, offset, value, invocation in partition.handlings():
        times.setdefault((offset, value), []).append(invocation)
    for (offset, value), invocations in sorted(times.items(), key=lambda each: each[0][0]):
        ordered = sorted(invocations, key=lambda each: (each.start_ns, each.line))
        for before, after in pairwise(ordered):
            if not _may_come_again(partition, offset, before, after):
                text = f"{value!r} at offset {offset} was handled again by subscription {partition.name}: nothing had "
                yield partition.anomaly(
                    Kind.HANDLED_AGAIN,
                    f"{text}disturbed the first delivery",
                    (offset, value),
                    lines=(before.line, after.line),
                )


def _may_come_again(partition: SubscribedPartition, offset: int, before: Invocation, after: Invocation) -> bool:
    is_behind_refused = partition.facts.push.is_ordered and any(each < offset for each in before.refused)
    return is_behind_refused or partition.pushes.was_disturbed(partition.facts, before.start_ns, after.start_ns)


def _before_start(partition: SubscribedPartition) -> Iterator[Anomaly]:
    created_ns = partition.facts.created_ns[0]
    found = {offset: (value, by) for _, offset, value, by in partition.handlings()}
    for offset, (value, invocation) in sorted(found.items(), key=lambda each: each[0]):
        sending = partition.pushes.sent.get((partition.where, value))
        if sending is not None and sending.known_ns is not None and sending.known_ns < created_ns:
            text = f"{value!r} at offset {offset} was acknowledged before the creation of subscription {partition.name}"
            text += ", which begins with the latest records, and has handled it"
            yield partition.anomaly(Kind.HANDLED_BEFORE_START, text, (offset, value), lines=(invocation.line,))
