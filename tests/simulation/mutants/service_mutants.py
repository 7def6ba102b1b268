"""Defects put into appends, puts, fetches, commits, truncations and deletions. The simulator must find each."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, new_segment_id
from penstock_core.log.index import HeadAppend, Page
from penstock_core.records.producer_state import is_newest
from penstock_core.storage.groups.lease_item import commit_update
from penstock_core.storage.item import ConditionalUpdate
from penstock_core.zones.zone_state import Acks, is_stored
from penstock_service.adapters.dynamodb import groups as dynamodb_groups
from penstock_service.adapters.dynamodb.log import DynamoDbLogIndex
from penstock_service.groups import commit_offsets as commit_module
from penstock_service.instance.caches import TopicCache
from penstock_service.instance.update_window import Moment, UpdateWindow
from penstock_service.records import append as append_module
from penstock_service.records import append_in_sequence as sequence_module
from penstock_service.records import fetch as fetch_module
from penstock_service.records import produce as produce_module
from penstock_service.repair import ensure_copies as ensure_module
from penstock_service.segments import put_segment as put_module
from penstock_service.segments import read_range as read_module
from penstock_service.topics import alter_topic as delete_module
from penstock_service.topics import alter_topic as truncate_module
from tests.simulation.mutants.mutant import Mutant, Patch
from tests.support.service import with_stores


def _append_is_repeated() -> Patch:
    class Repeating:
        def __init__(self, log: Any) -> None:
            self._log = log

        def __getattr__(self, name: str) -> Any:
            return getattr(self._log, name)

        def append(self, *arguments: Any) -> HeadAppend:
            try:
                done: HeadAppend = self._log.append(*arguments)
            except PenstockError as error:
                if not error.maybe_applied:
                    raise
                done = self._log.append(*arguments)
            return done

    original = append_module.append
    return patch.object(
        produce_module,
        "append",
        lambda instance, *rest: original(with_stores(instance, log=Repeating(instance.stores.log)), *rest),
    )


def _lost_reply_is_called_a_failure() -> Patch:
    original = produce_module.produce

    def produce(*arguments: Any) -> list[Any]:
        return [
            PenstockError(result.code, result.message) if isinstance(result, PenstockError) else result
            for result in original(*arguments)
        ]

    return patch("tests.simulation.clients.producer.produce", produce)


def _quorum_of_one() -> Patch:
    return patch.object(put_module, "is_stored", lambda acks, confirmed, *_: confirmed != 0)


def _all_is_a_quorum() -> Patch:
    def as_a_quorum(acks: Acks, *rest: Any) -> bool:
        return is_stored(Acks.QUORUM if acks is Acks.ALL else acks, *rest)

    return patch.object(put_module, "is_stored", as_a_quorum)


def _failed_put_counts() -> Patch:
    original = put_module._confirmed

    def confirmed(puts: Sequence[Any], results: Sequence[Any]) -> int:
        return original(puts, [True if isinstance(result, PenstockError) else result for result in results])

    return patch.object(put_module, "_confirmed", confirmed)


def _fetch_ignores_pages() -> Patch:
    return patch.object(fetch_module, "_candidates", lambda log, reading, *_: list(reading.head.located_tail()))


def _fetch_trusts_bytes() -> Patch:
    return patch.object(read_module, "check_range", lambda data, wanted: None)


def _fetch_reads_one_zone() -> Patch:
    original = read_module._in_order
    return patch.object(read_module, "_in_order", lambda instance, wanted: original(instance, wanted)[:1])


def _page_forgets_its_first_batch() -> Patch:
    original = Page.located
    return patch.object(Page, "located", lambda page: original(page)[1:])


def _delete_leaves_heads() -> Patch:
    return patch.object(delete_module, "PartitionKey", lambda topic_id, _: PartitionKey(topic_id, Partition(0)))


def _repair_spreads_bad_bytes() -> Patch:
    return patch.object(ensure_module, "check_segment", lambda body: None)


def _repair_marks_what_it_did_not_copy() -> Patch:
    original = ensure_module.ensure_copies
    return patch(
        "tests.simulation.workloads.jobs.repair.ensure_copies",
        lambda *arguments: replace(original(*arguments), good=arguments[-1]),
    )


def _commit_is_not_stored() -> Patch:
    def commit(instance: Any, group: str, entries: Sequence[Any]) -> list[None]:
        for entry in entries:
            instance.topic_cache.get(entry.topic)
        return [None for _ in entries]

    return patch("tests.simulation.workloads.commits.commit_offsets", commit)


def _commit_trusts_its_memory() -> Patch:
    original = commit_module.commit_offsets

    class Remembering:
        def __init__(self, directory: TopicCache) -> None:
            self.read_through = directory.get
            self.get_partition = directory.get_partition

    return patch(
        "tests.simulation.workloads.commits.commit_offsets",
        lambda instance, *rest: original(replace(instance, topic_cache=Remembering(instance.topic_cache)), *rest),
    )


def _late_commit_goes_back() -> Patch:
    """A commit without a member counts whatever is committed, as before docs/adr/0022."""

    def goes_back(*arguments: Any, **how: Any) -> ConditionalUpdate:
        return commit_update(*arguments, **{**how, "may_go_back": True})

    return patch.object(dynamodb_groups, "commit_update", goes_back)


def _truncate_takes_one_more() -> Patch:
    original = truncate_module.truncate
    return patch(
        "tests.simulation.clients.admin.truncate",
        lambda instance, topic, before: original(instance, topic, {key: offset + 1 for key, offset in before.items()}),
    )


def _append_before_put() -> Patch:
    """The append reaches the heads although perhaps no zone holds the segment yet."""
    original = put_module.put_segment

    @contextmanager
    def patched() -> Iterator[None]:
        def put(instance: Any, *rest: Any) -> Any:
            try:
                stored = original(instance, *rest)
            except PenstockError:
                stored = put_module.StoredSegment(
                    segment_id=new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(10)),
                    zones=7,
                    unconfirmed_zones=0,
                    window=UpdateWindow.open(instance.clock),
                )
            return stored

        with patch.object(append_module, "put_segment", put):
            yield

    return patched()


def _sequence_is_not_checked() -> Patch:
    return patch.object(
        DynamoDbLogIndex,
        "append_in_sequence",
        lambda log, key, ref, unconfirmed_zones, *_: log.append(key, ref, unconfirmed_zones),
    )


def _repeat_is_answered_with_the_newest_offset() -> Patch:
    def find(_: Any, repeat: Any) -> Offset:
        return Offset(repeat.head.next_offset - 1 - (repeat.sequence.last_sequence - repeat.sequence.first_sequence))

    return patch.object(sequence_module, "_find", find)


def _numbers_alone_make_a_repeat() -> Patch:
    return patch.multiple(sequence_module, ends_with_same_batch=is_newest, _compare=lambda *_: None)


def _repeat_of_the_newest_is_not_compared() -> Patch:
    return patch.object(sequence_module, "ends_with_same_batch", is_newest)


def _older_repeat_is_not_compared() -> Patch:
    return patch.object(sequence_module, "_compare", lambda *_: None)


def _put_counts_after_its_answer() -> Patch:
    """The watches of puts stay open over a freeze, as before decision 27 (docs/protocol/zones)."""
    return patch.object(put_module, "close_all", lambda watches: None)


def _read_counts_after_its_answer() -> Patch:
    class NeverSet:
        def is_set(self) -> bool:
            return False

        def set(self) -> None:
            pass

    return patch.object(read_module, "threading", SimpleNamespace(Event=NeverSet))


def _memory_ages_by_one_clock() -> Patch:
    def age_ms(moment: Moment, clock: Any) -> float:
        age: float = clock.monotonic_ms() - moment.monotonic_ms
        return age

    return patch.object(Moment, "age_ms", age_ms)


SERVICE_MUTANTS = [
    Mutant("append repeated after a lost reply", "rolling", _append_is_repeated),
    Mutant("lost reply called a failure", "traffic", _lost_reply_is_called_a_failure),
    Mutant("quorum of one", "zone_loss,traffic", _quorum_of_one),
    Mutant("all acks are a quorum", "zone_loss,traffic", _all_is_a_quorum),
    Mutant("failed put counted", "zone_loss,traffic", _failed_put_counts),
    Mutant("put counts after its answer", "freezing,zone_loss,traffic", _put_counts_after_its_answer),
    Mutant("read counts after its answer", "freezing,zone_loss,traffic", _read_counts_after_its_answer),
    Mutant("memory ages by one clock", "freezing,recover_zones,traffic", _memory_ages_by_one_clock),
    Mutant("append although no zone stored", "zone_loss,traffic", _append_before_put),
    Mutant("fetch ignores pages", "rolling", _fetch_ignores_pages),
    Mutant("page forgets its first ref", "rolling", _page_forgets_its_first_batch),
    Mutant("fetch trusts bytes", "zone_loss,traffic", _fetch_trusts_bytes),
    Mutant("fetch reads one zone", "zone_loss,traffic", _fetch_reads_one_zone),
    Mutant("repair spreads bad bytes", "zone_loss,repair,traffic", _repair_spreads_bad_bytes),
    Mutant("repair marks what it did not copy", "zone_loss,repair,traffic", _repair_marks_what_it_did_not_copy),
    Mutant("delete leaves heads", "recreation", _delete_leaves_heads),
    Mutant("commit not stored", "traffic,commits", _commit_is_not_stored),
    Mutant("late commit goes back", "traffic,commits", _late_commit_goes_back),
    Mutant("commit trusts its memory of the topic", "recreation,commits", _commit_trusts_its_memory),
    Mutant("truncate takes one more", "traffic,truncation", _truncate_takes_one_more),
    Mutant("sequence not checked", "numbering", _sequence_is_not_checked),
    Mutant("repeat answered with the newest offset", "numbering", _repeat_is_answered_with_the_newest_offset),
    Mutant("repeat known by its numbers alone", "forging", _numbers_alone_make_a_repeat),
    Mutant("repeat of the newest append not compared", "forging", _repeat_of_the_newest_is_not_compared),
    Mutant("repeat not compared with the stored bytes", "forging", _older_repeat_is_not_compared),
]
