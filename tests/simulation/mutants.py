"""Defects put into the service on purpose, each of which the simulator must find (test_mutants.py).

Each is a context manager that patches the code of the service while it is entered.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from penstock_broker import append as append_module
from penstock_broker import append_in_sequence as sequence_module
from penstock_broker import commit_offsets as commit_module
from penstock_broker import delete_topic as delete_module
from penstock_broker import ensure_copies as ensure_module
from penstock_broker import fetch as fetch_module
from penstock_broker import produce as produce_module
from penstock_broker import put_segment as put_module
from penstock_broker import read_range as read_module
from penstock_broker import truncate as truncate_module
from penstock_broker.adapters import memory_log
from penstock_broker.directory import TopicDirectory
from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, Partition
from penstock_core.index import Head, Page, Roll, appended, roll_due
from penstock_core.keys import PartitionKey
from penstock_core.producer_state import ProducerSequence
from penstock_core.quorum import Acks
from penstock_core.ref import Ref


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect, and the workload whose runs meet it."""

    name: str
    workload: str
    patched: Callable[[], AbstractContextManager[Any]]


def _append_is_repeated() -> AbstractContextManager[Any]:
    class Repeating:
        def __init__(self, log: Any) -> None:
            self._log = log

        def __getattr__(self, name: str) -> Any:
            return getattr(self._log, name)

        def append(self, *arguments: Any) -> Head:
            try:
                head: Head = self._log.append(*arguments)
            except PenstockError as error:
                if not error.maybe_applied:
                    raise
                head = self._log.append(*arguments)
            return head

    original = append_module.append
    return patch.object(
        produce_module, "append", lambda broker, *rest: original(replace(broker, log=Repeating(broker.log)), *rest)
    )


def _lost_reply_is_called_a_failure() -> AbstractContextManager[Any]:
    original = produce_module.produce

    def produce(*arguments: Any) -> list[Any]:
        return [
            PenstockError(result.code, result.message) if isinstance(result, PenstockError) else result
            for result in original(*arguments)
        ]

    return patch("tests.simulation.producer.produce", produce)


def _roll_without_condition() -> AbstractContextManager[Any]:
    def rolled(head: Head, roll: Roll) -> Head:
        return replace(
            head,
            tail_base=roll.page.end_offset,
            tail=head.tail[roll.ref_count :],
            rolled_max_timestamp_ms=roll.page.max_timestamp_ms,
        )

    return patch.object(memory_log, "rolled", rolled)


def _roll_drops_a_ref() -> AbstractContextManager[Any]:
    def due(head: Head) -> Roll | None:
        roll = roll_due(head)
        return roll and Roll(page=replace(roll.page, refs=roll.page.refs[1:]))

    return patch.object(append_module, "roll_due", due)


def _roll_never() -> AbstractContextManager[Any]:
    return patch.object(append_module, "roll_due", lambda head: None)


def _quorum_of_one() -> AbstractContextManager[Any]:
    return patch.object(put_module, "is_stored", lambda acks, confirmed, *_: confirmed != 0)


def _all_is_a_quorum() -> AbstractContextManager[Any]:
    original = put_module.is_stored

    def is_stored(acks: Acks, *rest: Any) -> bool:
        return original(Acks.QUORUM if acks is Acks.ALL else acks, *rest)

    return patch.object(put_module, "is_stored", is_stored)


def _failed_put_counts() -> AbstractContextManager[Any]:
    original = put_module._confirmed

    def confirmed(puts: Sequence[Any], results: Sequence[Any]) -> int:
        return original(puts, [True if isinstance(result, PenstockError) else result for result in results])

    return patch.object(put_module, "_confirmed", confirmed)


def _fetch_ignores_pages() -> AbstractContextManager[Any]:
    return patch.object(fetch_module, "_candidates", lambda broker, reading, *_: list(reading.head.located_tail()))


def _fetch_ignores_the_boundary() -> AbstractContextManager[Any]:
    """Pages that were rolled after the head was read come twice: as pages, and as the tail that was read."""

    def candidates(broker: Any, reading: Any, *_: Any) -> list[Any]:
        position = Offset(reading.entry.offset)
        refs = []
        if position < reading.head.tail_base:
            refs = [each for page in broker.log.pages(reading.key, position, 16) for each in page.located()]
        return refs + list(reading.head.located_tail())

    return patch.object(fetch_module, "_candidates", candidates)


def _fetch_trusts_bytes() -> AbstractContextManager[Any]:
    return patch.object(read_module, "_check", lambda data, wanted: None)


def _fetch_reads_one_zone() -> AbstractContextManager[Any]:
    original = read_module._in_order
    return patch.object(read_module, "_in_order", lambda broker, wanted: original(broker, wanted)[:1])


def _page_forgets_its_first_batch() -> AbstractContextManager[Any]:
    original = Page.located
    return patch.object(Page, "located", lambda page: original(page)[1:])


def _delete_leaves_heads() -> AbstractContextManager[Any]:
    return patch.object(delete_module, "PartitionKey", lambda topic_id, _: PartitionKey(topic_id, Partition(0)))


def _repair_spreads_bad_bytes() -> AbstractContextManager[Any]:
    return patch.object(ensure_module, "check_segment", lambda body: None)


def _repair_marks_what_it_did_not_copy() -> AbstractContextManager[Any]:
    original = ensure_module.ensure_copies
    return patch(
        "tests.simulation.workloads.repair.ensure_copies",
        lambda broker, segment_id, zones: replace(original(broker, segment_id, zones), good=zones),
    )


def _commit_is_not_stored() -> AbstractContextManager[Any]:
    def commit(broker: Any, group: str, entries: Sequence[Any]) -> list[None]:
        for entry in entries:
            broker.directory.find(entry.topic)
        return [None for _ in entries]

    return patch("tests.simulation.workloads.commits.commit_offsets", commit)


def _commit_trusts_its_memory() -> AbstractContextManager[Any]:
    original = commit_module.commit_offsets

    class Remembering:
        def __init__(self, directory: TopicDirectory) -> None:
            self.look_up = directory.find
            self.find_partition = directory.find_partition

    return patch(
        "tests.simulation.workloads.commits.commit_offsets",
        lambda broker, *rest: original(replace(broker, directory=Remembering(broker.directory)), *rest),
    )


def _truncate_takes_one_more() -> AbstractContextManager[Any]:
    original = truncate_module.truncate
    return patch(
        "tests.simulation.admin.truncate",
        lambda broker, topic, before: original(broker, topic, {key: offset + 1 for key, offset in before.items()}),
    )


def _append_before_put() -> AbstractContextManager[Any]:
    """The heads are told of a segment that no zone need hold yet."""
    original = put_module.put_segment

    @contextmanager
    def patched() -> Iterator[None]:
        def put(broker: Any, *rest: Any) -> Any:
            try:
                stored = original(broker, *rest)
            except PenstockError:
                stored = put_module.StoredSegment(
                    segment_id=put_module.new_segment_id(broker.clock.now_ms(), broker.chance.random_bytes(10)),
                    zones=7,
                    unconfirmed_zones=0,
                )
            return stored

        with patch.object(append_module, "put_segment", put):
            yield

    return patched()


def _sequence_is_not_checked() -> AbstractContextManager[Any]:
    return patch.object(memory_log, "appended_in_sequence", lambda head, ref, *_: appended(head, ref))


def _evicted_producers_are_forgotten() -> AbstractContextManager[Any]:
    return patch.object(memory_log.MemoryLogIndex, "evicted_producer", lambda *_: None)


def _evictions_are_not_compared() -> AbstractContextManager[Any]:
    original = memory_log.appended_in_sequence

    def in_sequence(head: Head, ref: Ref, sequence: ProducerSequence, _: int) -> Head | None:
        return original(head, ref, sequence, head.evictions)

    return patch.object(memory_log, "appended_in_sequence", in_sequence)


def _repeat_is_answered_with_the_newest_offset() -> AbstractContextManager[Any]:
    def find(broker: Any, key: PartitionKey, head: Head, sequence: ProducerSequence) -> Offset:
        return Offset(head.next_offset - 1 - (sequence.last_sequence - sequence.first_sequence))

    return patch.object(sequence_module, "_find", find)


MUTANTS = [
    Mutant("append repeated after a lost reply", "rolling", _append_is_repeated),
    Mutant("lost reply called a failure", "traffic", _lost_reply_is_called_a_failure),
    Mutant("roll without its condition", "rolling", _roll_without_condition),
    Mutant("roll drops a ref", "rolling", _roll_drops_a_ref),
    Mutant("no roll", "rolling", _roll_never),
    Mutant("quorum of one", "zone_loss,traffic", _quorum_of_one),
    Mutant("all acks are a quorum", "zone_loss,traffic", _all_is_a_quorum),
    Mutant("failed put counted", "zone_loss,traffic", _failed_put_counts),
    Mutant("append although no zone stored", "zone_loss,traffic", _append_before_put),
    Mutant("fetch ignores pages", "rolling", _fetch_ignores_pages),
    Mutant("fetch ignores where the tail begins", "rolling", _fetch_ignores_the_boundary),
    Mutant("page forgets its first ref", "rolling", _page_forgets_its_first_batch),
    Mutant("fetch trusts bytes", "zone_loss,traffic", _fetch_trusts_bytes),
    Mutant("fetch reads one zone", "zone_loss,traffic", _fetch_reads_one_zone),
    Mutant("repair spreads bad bytes", "zone_loss,repair,traffic", _repair_spreads_bad_bytes),
    Mutant("repair marks what it did not copy", "zone_loss,repair,traffic", _repair_marks_what_it_did_not_copy),
    Mutant("delete leaves heads", "recreation", _delete_leaves_heads),
    Mutant("commit not stored", "traffic,commits", _commit_is_not_stored),
    Mutant("commit trusts its memory of the topic", "recreation,commits", _commit_trusts_its_memory),
    Mutant("truncate takes one more", "traffic,truncation", _truncate_takes_one_more),
    Mutant("sequence not checked", "numbering", _sequence_is_not_checked),
    Mutant("evicted producers forgotten", "numbering", _evicted_producers_are_forgotten),
    Mutant("evictions not compared", "numbering", _evictions_are_not_compared),
    Mutant("repeat answered with the newest offset", "numbering", _repeat_is_answered_with_the_newest_offset),
]
