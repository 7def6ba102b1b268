"""The checks of a share group's locks: finished-again, two-locks, delivery-count and wrong-filter.

A consumer holds a record surely from the answer of its acquire on. The hold ends with the lock's time, counted from the
begin of the acquire or of a confirmed renewal. It also ends when an acknowledgement that gives the record up begins.
With order by key, a release takes the records behind it out of the locks of the same acquire. If another try of the
acquire has no answer, it may still run, and give back what it cannot read: then nothing of its locks is sure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from tests.history.format import AckResult, TopicPartition, Verb
from tests.history.model.anomaly import Anomaly, Kind
from tests.history.queue.facts import Decision, Delivery, GroupFacts, SharedRecord, ShareFacts

_MS = 1_000_000
_GIVES_UP = (Verb.ACCEPT, Verb.RELEASE, Verb.GIVE_BACK, Verb.REJECT)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """One partition of one share group. The clocks of the service may differ by `clock_skew_ns`."""

    group: str
    where: TopicPartition
    facts: GroupFacts
    shares: ShareFacts
    clock_skew_ns: int = 0

    def records(self) -> Iterator[SharedRecord]:
        """The records that the history tells of, by offset."""
        for _, record in sorted(self.facts.records.get(self.where, {}).items()):
            yield record

    def may_finish(self, decision: Decision) -> bool:
        """Whether the decision may have taken its record out of the group."""
        return self.facts.may_finish(self.where, decision)

    def ahead(self, delivery: Delivery) -> list[SharedRecord]:
        """With order by key: the earlier records of its key that the same acquire was given."""
        key = self.shares.key_of(self.where, delivery.value)
        if self.facts.share is None or not self.facts.share.is_by_key or key is None:
            return []
        records = self.facts.records[self.where]
        earlier = (each for each in self.facts.acquires[self.where, delivery.line] if each < delivery.offset)
        return [
            records[offset]
            for offset in earlier
            if self.shares.key_of(self.where, records[offset].deliveries[0].value) == key
        ]


def check_locks(partition: GroupPartition) -> Iterator[Anomaly]:
    """Judge the deliveries of each record."""
    for record in partition.records():
        yield from _finished_again(partition, record)
        yield from _two_locks(partition, record)
        yield from _counts(partition, record)
        yield from _filtered(partition, record)


def _finished_again(partition: GroupPartition, record: SharedRecord) -> Iterator[Anomaly]:
    ends = [
        (each.end_ns, each.start_ns, f"its {each.verb} was answered", each.line)
        for each in _finishing(partition, record)
    ]
    ends += [(each.end_ns, each.end_ns, "it was read as a dead letter", each.line) for each in record.letters.values()]
    for delivery in record.deliveries:
        for end_ns, start_ns, how, line in sorted(ends):
            if end_ns < delivery.start_ns and not partition.facts.was_reset(partition.where, start_ns, delivery.end_ns):
                text = f"was handed out to {delivery.process} by group {partition.group} after {how}"
                yield _found(Kind.FINISHED_AGAIN, partition, delivery, text, line)
                break


def _finishing(partition: GroupPartition, record: SharedRecord) -> list[Decision]:
    return [each for each in record.decisions if partition.may_finish(each) and each.is_told]


def _two_locks(partition: GroupPartition, record: SharedRecord) -> Iterator[Anomaly]:
    for first, second in combinations(record.deliveries, 2):
        if first.lock_id == second.lock_id:
            continue
        start_ns = max(first.end_ns, second.end_ns)
        end_ns = min(_hold_end_ns(partition, record, first), _hold_end_ns(partition, record, second))
        if start_ns < end_ns - partition.clock_skew_ns and not partition.facts.was_reset(
            partition.where, first.start_ns, second.end_ns
        ):
            text = f"was held by {first.process} and {second.process} at once in group {partition.group}"
            yield _found(Kind.TWO_LOCKS, partition, second, text, first.line)


def _hold_end_ns(partition: GroupPartition, record: SharedRecord, delivery: Delivery) -> int:
    mine = record.decisions_under(delivery.lock_id)
    ahead = partition.ahead(delivery)
    renewals = [each for each in mine if each.verb is Verb.RENEW and each.is_told and isinstance(each.detail, int)]
    until_ns = [delivery.until_ns, *([] if ahead else (each.start_ns + _lasts_ns(each) for each in renewals))]
    ends = [each.start_ns for each in mine if each.verb in _GIVES_UP or each.result is AckResult.LOST]
    ends += [each.start_ns for other in ahead for each in other.decisions if each.verb is not Verb.RENEW]
    return min([max(until_ns), *ends])


def _lasts_ns(renewal: Decision) -> int:
    return renewal.detail * _MS if isinstance(renewal.detail, int) else 0


def _counts(partition: GroupPartition, record: SharedRecord) -> Iterator[Anomaly]:
    most = partition.facts.share.deliveries_max if partition.facts.share else None
    for delivery in record.deliveries:
        if most is not None and delivery.count > most:
            text = f"was handed out to {delivery.process} as delivery {delivery.count} of {most}"
            yield _found(Kind.DELIVERY_COUNT, partition, delivery, text)
    for first in record.deliveries:
        for second in record.deliveries:
            if first.end_ns >= second.start_ns or first.lock_id == second.lock_id:
                continue
            least = first.count + 1 - _taken_back(partition, record, first, second)
            if second.count < least and not partition.facts.was_reset(partition.where, first.start_ns, second.end_ns):
                text = (
                    f"was handed out to {second.process} as delivery {second.count}, after {first.process} had "
                    f"delivery {first.count}"
                )
                yield _found(Kind.DELIVERY_COUNT, partition, second, text, first.line)


def _taken_back(partition: GroupPartition, record: SharedRecord, first: Delivery, second: Delivery) -> int:
    """The deliveries that may have been taken back from the begin of the first until the end of the second."""
    between = [each for each in record.deliveries if first.start_ns <= each.end_ns and each.start_ns <= second.end_ns]
    given_back = {
        each.lock_id
        for each in record.decisions
        if each.verb is Verb.GIVE_BACK and each.end_ns >= first.start_ns and each.start_ns <= second.end_ns
    }
    behind = {each.lock_id for each in between if partition.ahead(each)}
    return len(given_back | behind)


def _filtered(partition: GroupPartition, record: SharedRecord) -> Iterator[Anomaly]:
    ending = partition.facts.share.ending if partition.facts.share else None
    for delivery in record.deliveries:
        if ending is not None and not str(delivery.value).endswith(ending):
            text = f"was handed out to {delivery.process}, and the filter of group {partition.group} excludes it"
            yield _found(Kind.WRONG_FILTER, partition, delivery, text)


def _found(kind: Kind, partition: GroupPartition, delivery: Delivery, text: str, *lines: int) -> Anomaly:
    return Anomaly(
        kind=kind,
        where=partition.where,
        text=f"{delivery.value!r} at offset {delivery.offset} {text}",
        offsets=(delivery.offset,),
        values=(delivery.value,),
        lines=(*lines, delivery.line),
    )
