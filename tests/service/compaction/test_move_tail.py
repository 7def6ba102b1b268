"""A tail that gets no more records is moved to the archive, ref by ref, whatever else happens to its head."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_core.limits import COMPACTION_RUN_MS_MAX, STALE_MS, TAIL_ROLL_REFS, TIERED_SWEEP_GRACE_MS, TIERING_MS_MAX
from penstock_core.log.index import Head
from penstock_core.log.ref import LocatedRef, Tier
from penstock_core.log.roll import next_page
from penstock_core.log.segment import check_segment
from penstock_core.zones.zone_state import Acks
from penstock_service.compaction.compact import CompactionResult, compact
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.records.produce import produce
from penstock_service.records.shorten_head import GrownHead, shorten_heads
from penstock_service.retention.sweep import sweep
from penstock_service.topics.alter_topic import delete_topic, truncate
from tests.service.compaction.test_archive import archive_of
from tests.service.compaction.test_compact_every_step import End, ending_at
from tests.service.compaction.written_topic import FOR_EVER, HOUR_MS, pages_of
from tests.service.records.test_idempotence import numbered, tell
from tests.support.interleaving import catch_kill
from tests.support.service import (
    LOST_ANSWER,
    Intercepted,
    SteppedClock,
    another_instance,
    batch,
    counted_instance,
    entry,
    head_of,
    key_of,
    new_topic,
    read_all,
    send,
    zone_of,
)

SETTINGS = CompactionSettings(zonal_ms_max=TIERING_MS_MAX)
SHORT = TAIL_ROLL_REFS - 1


@pytest.fixture
def topic(instance: Instance, clock: SteppedClock) -> str:
    """A topic whose tail is as long as a tail is that is moved, and old enough."""
    topic = new_topic(instance)
    for number in range(SHORT):
        send(instance, topic, f"{number}a", f"{number}b")
    clock.time_ms += TIERING_MS_MAX
    return topic


def run(instance: Instance, topic: str) -> CompactionResult:
    return compact(instance, topic, 0, SETTINGS)


def tiers(head: Head) -> list[Tier]:
    return [ref.tier for ref in head.tail]


def test_refs_and_their_bytes_go_to_one_segment_of_the_archive(instance: Instance, topic: str) -> None:
    before, records = head_of(instance, topic), read_all(instance, topic)
    done = run(instance, topic)
    after = head_of(instance, topic)
    assert (done.runs, done.refs_after, done.bytes_after) == (1, SHORT, sum(ref.length for ref in before.tail))
    assert [replace(ref, zones=0b111, tier=Tier.ZONAL, segment_id=old.segment_id, position=0, appended_ms=None)
            for ref, old in zip(after.tail, before.tail, strict=True)] == [*before.tail]  # fmt: skip
    assert replace(after, tail=before.tail) == before
    [body] = archive_of(instance).segments.values()
    assert len(check_segment(body)) == SHORT
    zones = zone_of(instance, 0).segments
    for old, ref in zip(before.tail, after.tail, strict=True):
        assert body[ref.position :][: ref.length] == zones[old.segment_id][old.position :][: old.length]
    assert read_all(instance, topic) == records


def test_moved_tail_goes_on_as_any_other(instance: Instance, topic: str, clock: SteppedClock) -> None:
    run(instance, topic)
    for number in range(TAIL_ROLL_REFS):
        send(instance, topic, f"later {number}")
    [page] = pages_of(instance, topic)
    assert [ref.tier for ref in page.refs] == [Tier.ARCHIVE] * SHORT + [Tier.ZONAL]
    records = read_all(instance, topic)
    clock.time_ms += TIERING_MS_MAX
    run(instance, topic)
    refs = [*pages_of(instance, topic)[0].refs, *head_of(instance, topic).tail]
    assert {ref.tier for ref in refs} == {Tier.ARCHIVE}
    assert read_all(instance, topic) == records


def test_run_without_anything_to_move_writes_its_lease_alone(
    instance: Instance, topic: str, clock: SteppedClock
) -> None:
    idle = {"topics.get": 1, "log.heads": 1, "compaction.acquire": 1, "compaction.save": 1}
    counts = Counter[str]()
    clock.time_ms -= 1
    assert run(counted_instance(instance, counts), topic).runs == 0
    assert counts == idle
    clock.time_ms += 1
    run(instance, topic)
    counts.clear()
    clock.time_ms += TIERING_MS_MAX
    assert run(counted_instance(instance, counts), topic).runs == 0
    assert counts == idle, "what has moved does not move again"


def test_one_transaction_moves_a_tail(instance: Instance, topic: str) -> None:
    counts = Counter[str]()
    run(counted_instance(instance, counts), topic)
    writes = ("archive.upload", "compaction.acquire", "compaction.save", "compaction.move_tail")
    reads = {"topics.get", "zone_states.get", "log.heads", "zone.get"}
    assert {call: calls for call, calls in counts.items() if call not in reads} == dict.fromkeys(writes, 1)


def test_repeat_is_proven_by_the_bytes_that_have_moved(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    first = tell(instance, topic, numbered(0, "a"))
    tell(instance, topic, numbered(1, "b"))
    clock.time_ms += TIERING_MS_MAX
    run(instance, topic)
    clock.time_ms += TIERED_SWEEP_GRACE_MS + HOUR_MS
    sweep(instance, budget_ms=FOR_EVER, grace_ms=TIERED_SWEEP_GRACE_MS)
    assert not zone_of(instance, 0).segments
    assert tell(instance, topic, numbered(0, "a")) == first
    with pytest.raises(PenstockError, match="with other bytes"):
        tell(instance, topic, numbered(0, "x"))


def test_old_copies_stay_for_the_grace_and_for_whom_else_they_are(instance: Instance, clock: SteppedClock) -> None:
    """The segment holds refs of two partitions."""
    shared = new_topic(instance, partitions=2)
    produce(instance, [entry(shared, 0, batch("a")), entry(shared, 1, batch("b"))], Acks.QUORUM)
    clock.time_ms += TIERING_MS_MAX
    assert compact(instance, shared, 0, SETTINGS).runs == 1
    [segment_id] = zone_of(instance, 0).segments
    clock.time_ms += 2 * TIERED_SWEEP_GRACE_MS
    assert sweep(instance, budget_ms=FOR_EVER, grace_ms=TIERED_SWEEP_GRACE_MS).deleted == 0
    assert compact(instance, shared, 1, SETTINGS).runs == 1
    clock.time_ms += TIERED_SWEEP_GRACE_MS
    assert sweep(instance, budget_ms=FOR_EVER, grace_ms=TIERED_SWEEP_GRACE_MS).deleted == 0
    assert segment_id in zone_of(instance, 0).segments
    clock.time_ms += 1
    assert sweep(instance, budget_ms=FOR_EVER, grace_ms=TIERED_SWEEP_GRACE_MS).deleted == 3
    assert read_all(instance, shared, partition=1) == [(0, "b")]


def roll_tail(instance: Instance, topic: str, window: UpdateWindow | None = None, head: Head | None = None) -> None:
    grown = GrownHead(key=key_of(instance, topic), head=head or head_of(instance, topic), added_refs=TAIL_ROLL_REFS)
    shorten_heads(instance, window or UpdateWindow.open(instance.clock), [grown])


def unrolled(instance: Instance) -> Instance:
    """An instance whose rolls die before their first write."""

    def put_page(*_: Any) -> Any:
        raise LOST_ANSWER

    return another_instance(instance, log=Intercepted(instance.stores.log, put_page=put_page))


@pytest.mark.parametrize("refs", [TAIL_ROLL_REFS, 2 * TAIL_ROLL_REFS - 1, 3 * TAIL_ROLL_REFS + 2])
def test_tail_that_its_writers_have_not_rolled_is_rolled_and_moved(
    instance: Instance, clock: SteppedClock, refs: int
) -> None:
    topic = new_topic(instance)
    for number in range(refs):
        send(unrolled(instance), topic, str(number))
    assert len(head_of(instance, topic).tail) == refs
    clock.time_ms += TIERING_MS_MAX
    done = run(instance, topic)
    assert (done.refused, done.failures) == (0, 0)
    head = head_of(instance, topic)
    assert len(head.tail) == refs % TAIL_ROLL_REFS
    assert {ref.tier for page in pages_of(instance, topic) for ref in page.refs} == {Tier.ARCHIVE}
    assert set(tiers(head)) <= {Tier.ARCHIVE}
    assert read_all(instance, topic) == [(number, str(number)) for number in range(refs)]


def test_tail_that_cannot_be_rolled_stays_and_its_bytes_are_told(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    for number in range(TAIL_ROLL_REFS):
        send(unrolled(instance), topic, str(number))
    clock.time_ms += STALE_MS
    head = head_of(instance, topic)
    done = run(unrolled(instance), topic)
    assert (done.runs, done.refused, done.bytes_stale) == (0, 1, sum(ref.length for ref in head.tail))
    assert head_of(instance, topic) == head
    assert not archive_of(instance).segments


def before_the_move(instance: Instance, meanwhile: Callable[[], object]) -> Instance:
    """An instance before whose first move something else happens."""
    once = [meanwhile]

    def move_tail(original: Any, *arguments: Any) -> Any:
        if once:
            once.pop()()
        return original(*arguments)

    return another_instance(instance, compaction=Intercepted(instance.stores.compaction, move_tail=move_tail))


def test_page_that_a_frozen_roller_has_put_is_never_of_refs_that_move(instance: Instance, topic: str) -> None:
    """The tail grows to a page while the mover copies, a roller puts the page, and freezes before its second write."""

    def meanwhile() -> None:
        send(unrolled(instance), topic, "16")
        page = next_page(head_of(instance, topic))
        assert page is not None
        assert instance.stores.log.put_page(key_of(instance, topic), page) == page

    records = [*read_all(instance, topic), (2 * SHORT, "16")]
    done = run(before_the_move(instance, meanwhile), topic)
    assert (done.runs, done.refused) == (0, 1)
    assert set(tiers(head_of(instance, topic))) == {Tier.ZONAL}
    roll_tail(instance, topic)
    assert not head_of(instance, topic).tail, "another roller goes on with that page"
    assert read_all(instance, topic) == records
    run(instance, topic)
    assert {ref.tier for page in pages_of(instance, topic) for ref in page.refs} == {Tier.ZONAL}, (
        "its last ref is young"
    )


def test_roller_that_read_the_head_before_the_move_has_seen_no_page(instance: Instance, topic: str) -> None:
    old, window = head_of(instance, topic), UpdateWindow.open(instance.clock)
    run(instance, topic)
    roll_tail(instance, topic, window, old)
    assert not pages_of(instance, topic)
    send(unrolled(instance), topic, "16")
    roll_tail(instance, topic, window)
    [page] = pages_of(instance, topic)
    assert [ref.tier for ref in page.refs] == [Tier.ARCHIVE] * SHORT + [Tier.ZONAL]


def test_appends_meanwhile_stay_behind_the_moved_refs(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    send(instance, topic, "a")
    clock.time_ms += TIERING_MS_MAX
    assert run(before_the_move(instance, lambda: send(instance, topic, "b")), topic).runs == 1
    assert tiers(head_of(instance, topic)) == [Tier.ARCHIVE, Tier.ZONAL]
    assert read_all(instance, topic) == [(0, "a"), (1, "b")]


def test_bits_that_a_repair_sets_meanwhile_do_not_stop_the_move(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    zone_of(instance, 2).is_down = True
    send(instance, topic, "a")
    send(instance, topic, "b")
    zone_of(instance, 2).is_down = False
    first, second = head_of(instance, topic).located_tail()
    log, key = instance.stores.log, key_of(instance, topic)
    clock.time_ms += TIERING_MS_MAX
    done = run(before_the_move(instance, lambda: log.mark_stored(key, {first: 0b100})), topic)
    assert (done.runs, done.refused) == (1, 0)
    assert [(ref.tier, ref.zones) for ref in head_of(instance, topic).tail] == [(Tier.ARCHIVE, 0)] * 2
    late: dict[LocatedRef, int] = {first: 0b100, second: 0b100}
    assert log.mark_stored(key, late) == 0, "a repair that comes late ends"


def test_second_mover_changes_nothing(instance: Instance, topic: str) -> None:
    """The lease of the first has expired."""
    done = run(before_the_move(instance, lambda: another_mover(instance, topic)), topic)
    assert (done.runs, done.refused) == (0, 1)
    named = {ref.segment_id for ref in head_of(instance, topic).tail}
    assert len(named) == 1
    assert len(archive_of(instance).segments) == 2
    assert len(read_all(instance, topic)) == 2 * SHORT


def another_mover(instance: Instance, topic: str) -> None:
    clock = instance.clock
    assert isinstance(clock, SteppedClock)
    clock.time_ms += SETTINGS.lease_ms + 1
    assert run(instance, topic).runs == 1


def test_lost_answer_of_the_move_is_found_out(instance: Instance, topic: str) -> None:
    def move_tail(original: Any, *arguments: Any) -> Any:
        assert original(*arguments)
        return original(*arguments)  # as the client repeats it

    client = another_instance(instance, compaction=Intercepted(instance.stores.compaction, move_tail=move_tail))
    assert run(client, topic).runs == 1
    assert set(tiers(head_of(instance, topic))) == {Tier.ARCHIVE}


def test_mover_that_slept_before_its_update_gives_up(instance: Instance, topic: str, clock: SteppedClock) -> None:
    def upload(original: Any, *arguments: Any) -> Any:
        original(*arguments)
        clock.time_ms += COMPACTION_RUN_MS_MAX + 1

    sleepy = another_instance(instance, archive=Intercepted(instance.stores.archive, upload=upload))
    assert (run(sleepy, topic).runs, run(instance, topic).runs) == (0, 1)


@pytest.mark.parametrize("start", [3, 2 * SHORT])
def test_refs_below_the_log_start_are_left(instance: Instance, topic: str, start: int) -> None:
    truncate(instance, topic, {0: start})
    done = run(instance, topic)
    assert done.refs_after == SHORT - start // 2
    assert tiers(head_of(instance, topic)).count(Tier.ZONAL) == start // 2
    assert [offset for offset, _ in read_all(instance, topic, offset=start)] == list(range(start, 2 * SHORT))


def test_topic_that_is_deleted_meanwhile_is_no_failure(instance: Instance, topic: str) -> None:
    done = run(before_the_move(instance, lambda: delete_topic(instance, topic)), topic)
    assert (done.runs, done.failures) == (0, 0)


def test_bytes_that_no_zone_gives_are_a_failure_until_one_does(instance: Instance, topic: str) -> None:
    for index in range(3):
        zone_of(instance, index).is_down = True
    stuck = run(instance, topic)
    assert (stuck.runs, stuck.failures) == (0, 1)
    for index in range(3):
        zone_of(instance, index).is_down = False
    assert run(instance, topic).runs == 1


@pytest.mark.parametrize("end", End)
def test_run_ending_at_any_call_leaves_the_records_and_the_next_finishes(
    clock: SteppedClock, instance: Instance, end: End
) -> None:
    calls = 0
    for place in count():
        topic, was_reached = new_topic(instance, f"t{place}"), list[bool]()
        for number in range(TAIL_ROLL_REFS + 3):
            send(unrolled(instance), topic, str(number))
        clock.time_ms += TIERING_MS_MAX
        records = read_all(instance, topic)
        with catch_kill(), suppress(PenstockError):
            run(ending_at(instance, place, end, was_reached), topic)
        if not was_reached:
            break
        calls += 1
        assert read_all(instance, topic) == records
        clock.time_ms += SETTINGS.lease_ms + 1
        assert run(instance, topic).failures == 0
        assert set(tiers(head_of(instance, topic))) == {Tier.ARCHIVE}
        assert {ref.tier for page in pages_of(instance, topic) for ref in page.refs} == {Tier.ARCHIVE}
        assert read_all(instance, topic) == records
    assert calls > 20
