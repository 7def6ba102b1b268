"""The checks of how records leave a share group: unfinished, dead-letter-twice and wrong-dead-letter."""

from collections.abc import Iterator

from tests.history.checks.truncation import Truncations
from tests.history.checks.version_order import VersionOrder
from tests.history.format import AckResult, Share, TopicPartition, Value, Verb
from tests.history.model.anomaly import Anomaly, Kind
from tests.history.queue.facts import FoundLetter, GroupFacts, SharedRecord
from tests.history.queue.locks import GroupPartition

_BY_DELIVERIES, _REJECTED = "deliveries", "rejected"  # the service's own reasons


def check_dead_letters(partition: GroupPartition, order: VersionOrder) -> Iterator[Anomaly]:
    """Judge each record that a reader found in a dead-letter topic."""
    for offset, record in sorted(partition.facts.records.get(partition.where, {}).items()):
        letters = sorted(record.letters.values(), key=lambda each: (each.where, each.letter.offset))
        if len(letters) > 1 and not partition.facts.was_reset(partition.where, 0, letters[-1].end_ns):
            places = " and ".join(f"{each.where[0]}/{each.where[1]} at {each.letter.offset}" for each in letters)
            value = letters[0].letter.value
            text = f"{value!r} at offset {offset} is a dead letter of group {partition.group} twice: {places}"
            yield Anomaly(
                kind=Kind.DEAD_LETTER_TWICE,
                where=partition.where,
                text=text,
                offsets=(offset,),
                values=(value,),
                lines=tuple(each.line for each in letters),
            )
        for each in letters:
            for wrong in _wrongs(partition, record, each, order):
                value = each.letter.value
                yield Anomaly(
                    kind=Kind.WRONG_DEAD_LETTER,
                    where=partition.where,
                    text=f"{value!r} at offset {offset} is a dead letter of group {partition.group}, {wrong}",
                    offsets=(offset,),
                    values=(value,),
                    lines=(each.line,),
                )


def _wrongs(partition: GroupPartition, record: SharedRecord, found: FoundLetter, order: VersionOrder) -> Iterator[str]:
    letter, share, where = found.letter, partition.facts.share, partition.where
    if share is None or where[0] not in share.topics or share.dead_letter_topic != found.where[0]:
        yield f"and {found.where[0]} is not where that group's dead letters of {where[0]} go"
        return
    value = order[where].value_at.get(letter.origin_offset)
    if value != letter.value:
        yield f"and offset {letter.origin_offset} holds {value!r}"
    key = partition.shares.key_of(where, letter.value)
    if key != letter.key:
        yield f"with key {letter.key!r} in place of {key!r}"
    rejects = [each for each in record.decisions if each.verb is Verb.REJECT and partition.may_finish(each)]
    reasons = {each.detail or _REJECTED for each in rejects}
    is_over = share.deliveries_max is not None and letter.deliveries == share.deliveries_max
    if not (letter.reason in reasons or (is_over and letter.reason in _last_words(record))):
        yield f"after {letter.deliveries} of {share.deliveries_max} deliveries for the reason {letter.reason!r}"
    if any(
        each.verb is Verb.ACCEPT and each.result is AckResult.OK and each.is_told for each in record.decisions
    ) and not partition.facts.was_reset(where, 0, found.end_ns):
        yield "and was accepted"


def _last_words(record: SharedRecord) -> set[str]:
    """The reasons of a last delivery: what a release said, an earlier one if the last worker was silent, or nothing."""
    said = {each.detail for each in record.decisions if each.verb is Verb.RELEASE and each.detail}
    return {_BY_DELIVERIES, *(f"{_BY_DELIVERIES}{when}: {each}" for when in ("", ", earlier") for each in said)}


def check_unfinished(
    partition: GroupPartition, topic_drained_ns: int, order: VersionOrder, truncations: Truncations
) -> Iterator[Anomaly]:
    """Judge what the group left behind: every record of the partition must be finished, or excused.

    A reset may skip records, so it excuses its partition.
    """
    share, where = partition.facts.share, partition.where
    if share is None or where in partition.facts.resets:
        return
    records = partition.facts.records.get(where, {})
    start_offset = truncations.start_offset(where)
    for offset, value in sorted(order[where].value_at.items()):
        is_wanted = share.ending is None or str(value).endswith(share.ending)
        is_late = partition.shares.sent_ns.get((where, value), 0) > topic_drained_ns
        if offset < start_offset or not is_wanted or is_late:
            continue
        fate = _fate(partition, records.get(offset), share)
        if fate is not None:
            yield _unfinished(partition, offset, value, fate)


def _fate(partition: GroupPartition, record: SharedRecord | None, share: Share) -> str | None:
    """Why the record is unfinished, None if it is not."""
    if record is None or not (record.deliveries or record.letters):
        return "was never handed out"
    if record.letters or any(each.verb is Verb.ACCEPT and partition.may_finish(each) for each in record.decisions):
        return None
    is_rejected = any(each.verb is Verb.REJECT and partition.may_finish(each) for each in record.decisions)
    last = max(record.deliveries, key=lambda each: each.count)
    is_over = share.deliveries_max is not None and last.count >= share.deliveries_max
    if is_rejected and share.dead_letter_topic is None:
        return None
    if (is_rejected or is_over) and share.dead_letter_topic not in partition.shares.dead_letter_topics_read:
        return None  # it may be there
    if is_rejected:
        return f"was rejected, and is no dead letter in {share.dead_letter_topic}"
    return f"was handed out {len(record.deliveries)} times, last to {last.process} as delivery {last.count}"


def _unfinished(partition: GroupPartition, offset: int, value: Value, fate: str) -> Anomaly:
    return Anomaly(
        kind=Kind.UNFINISHED,
        where=partition.where,
        text=f"{value!r} at offset {offset} is unfinished in group {partition.group}: it {fate}",
        offsets=(offset,),
        values=(value,),
    )


def partitions_of(facts: GroupFacts, order: VersionOrder, topic: str) -> list[TopicPartition]:
    """The partitions of the topic of which the history tells."""
    return sorted({where for where in [*order.partitions, *facts.records] if where[0] == topic})
