"""The checks of how records leave a subscription: unhandled, dead-letter-twice and wrong-dead-letter.

A subscription that begins with the latest records begins each partition at one offset. Records that were sent after its
creation lie behind it, and so do records behind one that was handled.
"""

from collections.abc import Iterator

from tests.history.checks.truncation import Truncations
from tests.history.format import DeadLetter, TopicPartition, Value
from tests.history.model.anomaly import Anomaly, Kind
from tests.history.push.subscribed_partition import SubscribedPartition


def check_unhandled(partition: SubscribedPartition, drained_ns: int, truncations: Truncations) -> Iterator[Anomaly]:
    """Judge what is left behind: every record that the subscription takes was handled, copied or buried."""
    push, where = partition.facts.push, partition.where
    start_offset = truncations.start_offset(where)
    handled = {offset for _, offset, _, _ in partition.handlings()}
    copied = {value for value, _ in partition.facts.copies.get((push.copies_to or "", where[1]), {}).values()}
    letters = partition.facts.letters
    has_unread = push.dead_letter_topic not in (None, *partition.pushes.dead_letter_topics_read)
    lowest = min((*handled, *(offset for place, offset in letters if place == where)), default=None)
    for offset, value in sorted(partition.order[where].value_at.items()):
        is_wanted = push.ending is None or str(value).endswith(push.ending)
        is_left = offset not in handled and value not in copied and (where, offset) not in letters
        if offset < start_offset or not is_wanted or not is_left or has_unread:
            continue  # where nobody has read the dead letters, it may be one of them
        if _is_due(partition, offset, value, drained_ns, lowest):
            text = f"{value!r} at offset {offset} was never handled by subscription {partition.name}"
            yield partition.anomaly(Kind.UNHANDLED, text, (offset, value))


def _is_due(partition: SubscribedPartition, offset: int, value: Value, drained_ns: int, lowest: int | None) -> bool:
    """Whether the record was there when the drain began, and lies behind the subscription's begin."""
    sending = partition.pushes.sent.get((partition.where, value))
    if sending is not None and sending.end_ns > drained_ns:
        return False
    is_behind = lowest is not None and offset > lowest
    is_after = sending is not None and sending.start_ns > partition.facts.created_ns[1]
    return not partition.facts.push.is_latest or is_behind or is_after


def check_letters(partition: SubscribedPartition) -> Iterator[Anomaly]:
    """Judge the dead letters of the partition's records."""
    for (where, offset), places in sorted(partition.facts.letters.items()):
        if where != partition.where:
            continue
        found = [(place, *letter) for place, letter in sorted(places.items(), key=lambda each: each[0])]
        value, lines = found[0][1].value, tuple(line for _, _, line in found)
        text = f"{value!r} at offset {offset} is a dead letter of subscription {partition.name}"
        if len(found) > 1:
            twice = f"{text} {len(found)} times"
            yield partition.anomaly(Kind.DEAD_LETTER_TWICE, twice, (offset, value), lines=lines)
        for (at, _), letter, line in found:
            why = _wrong(partition, letter, at)
            if why:
                wrong = f"{letter.value!r} at offset {offset} is a dead letter of subscription {partition.name}, {why}"
                yield partition.anomaly(Kind.WRONG_DEAD_LETTER, wrong, (offset, letter.value), lines=(line,))


def _wrong(partition: SubscribedPartition, letter: DeadLetter, at: TopicPartition) -> str:
    push, where, offset = partition.facts.push, partition.where, letter.origin_offset
    if where[0] not in push.topics or at[0] != push.dead_letter_topic:
        return f"and {at[0]} is not where that subscription's dead letters of {where[0]} go"
    held = partition.order[where].value_at.get(offset)
    if held != letter.value:
        return f"and offset {offset} holds {held!r}"
    if push.is_complete and not _has_failed(partition, offset):
        return "and its target never failed with it"
    return ""


def _has_failed(partition: SubscribedPartition, offset: int) -> bool:
    """Whether an invocation with the record failed, was not answered, or named the record."""
    return any(
        offset in each.refused or (not each.is_answered and any(offset == given for given, _ in each.records))
        for each in partition.facts.invocations.get(partition.where, ())
    )
