"""The keeper: zones come back, catch up, and are in sync only when they hold everything, whatever dies meanwhile."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock_broker.broker import Broker
from penstock_broker.keep_zones import Kept, keep_zones
from penstock_broker.move_zone import move_zone_by_operator
from penstock_broker.ports import SegmentStore
from penstock_broker.truncate import truncate
from penstock_broker.walk_index import refs_of
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, SegmentId
from penstock_core.keys import PartitionKey
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.quorum import Acks
from penstock_core.zone_state import BARRIER_MS, REMEMBERED_MS_MAX, ZoneStatus
from tests.broker.setting import (
    LOST_ANSWER,
    UNAVAILABLE,
    Intercepted,
    Killed,
    SteppedClock,
    another_instance,
    counted_broker,
    new_topic,
    read_all,
    send,
    zone_of,
)

BUDGET_MS = 1e9
MINUTE_MS = 60_000


def run(broker: Broker, **changes: Any) -> Kept:
    """One run in an instance of its own."""
    return keep_zones(another_instance(broker, **changes), BUDGET_MS)


def status(broker: Broker, zone: int) -> ZoneStatus:
    return broker.zone_states.get().of(broker.zone_names[zone]).status


def named_segments(broker: Broker) -> set[SegmentId]:
    """What refs name, in pages and tails."""
    found: set[SegmentId] = set()
    for topic in broker.topics.list():
        for partition in topic.all_partitions():
            key = PartitionKey(topic.topic_id, partition)
            head = broker.log.heads([key])[key]
            pages = broker.log.pages(key, head.log_start_offset, 1_000)
            found |= {ref.segment_id for page in pages for ref in page.refs} | {ref.segment_id for ref in head.tail}
    return found


def holds_everything(broker: Broker, zone: int) -> bool:
    return named_segments(broker) <= set(zone_of(broker, zone).segments)


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with pages and a tail, most of it written while zone c was down; c is out of sync."""
    name = new_topic(broker)
    send(broker, name, "before")
    zone_of(broker, 2).is_down = True
    for number in range(3 * TAIL_ROLL_REFS):
        send(broker, name, str(number))
    assert status(broker, 2) is ZoneStatus.OUT_OF_SYNC
    assert not holds_everything(broker, 2)
    return name


def test_keeper_reads_once_when_every_zone_is_in_sync(broker: Broker) -> None:
    new_topic(broker)
    reads: list[str] = []

    def get(original: Any) -> Any:
        reads.append("states")
        return original()

    def fail(*_arguments: Any) -> Any:
        raise AssertionError("nothing else is looked at")

    store = Intercepted(broker.zone_states, get=get, get_pass=fail, save_pass=fail, change=fail)
    kept = run(broker, zone_states=store, log=Intercepted(broker.log, heads=fail, pages=fail))
    assert (list(kept.let_back), list(kept.in_sync)) == ([], [])
    assert len(reads) <= 2


def test_zone_stays_out_while_it_does_not_answer(broker: Broker, topic: str) -> None:
    assert run(broker).let_back == []
    assert status(broker, 2) is ZoneStatus.OUT_OF_SYNC


def test_zone_stays_out_while_what_is_put_does_not_come_back(broker: Broker, topic: str) -> None:
    zone_of(broker, 2).is_down = False

    def get(_original: Any, *_arguments: Any) -> bytes:
        return b"?"

    zones: list[Any] = [*broker.zones[:2], Intercepted(broker.zones[2], get=get)]
    assert run(broker, zones=zones).let_back == []
    assert status(broker, 2) is ZoneStatus.OUT_OF_SYNC


def test_zone_that_answers_again_is_copied_to_at_once_and_in_sync_after_the_barrier(
    broker: Broker, clock: SteppedClock, topic: str
) -> None:
    zone_of(broker, 2).is_down = False
    first = run(broker)
    assert (first.let_back, first.in_sync, first.progress.failures) == (["c"], [], 0)
    assert first.progress.segments == 3 * TAIL_ROLL_REFS
    assert status(broker, 2) is ZoneStatus.CATCHING_UP
    assert holds_everything(broker, 2)
    clock.time_ms += BARRIER_MS - 1
    assert run(broker).in_sync == []
    clock.time_ms += 1
    last = run(broker)
    assert (last.in_sync, last.progress.segments) == (["c"], 0)
    assert status(broker, 2) is ZoneStatus.IN_SYNC
    zone_of(broker, 0).is_down = zone_of(broker, 1).is_down = True
    assert len(read_all(another_instance(broker), topic)) == 1 + 3 * TAIL_ROLL_REFS


def test_what_a_writer_with_older_states_left_out_is_found_before_the_zone_is_in_sync(
    broker: Broker, clock: SteppedClock, topic: str
) -> None:
    """It remembers that c is out for 10 s after c catches up, and then takes all the time a function may."""
    stale = another_instance(broker)
    zone_of(broker, 2).is_down = False
    send(stale, topic, "remembers")
    run(broker)
    assert status(broker, 2) is ZoneStatus.CATCHING_UP
    clock.time_ms += REMEMBERED_MS_MAX - 1
    send(stale, topic, "late")
    assert not holds_everything(broker, 2)
    clock.time_ms += 1
    send(stale, topic, "knows now")
    clock.time_ms += MINUTE_MS
    assert run(broker).in_sync == ["c"]
    assert holds_everything(broker, 2)


def test_writers_put_to_a_zone_that_catches_up_and_all_does_not_wait_for_it(broker: Broker, topic: str) -> None:
    zone_of(broker, 2).is_down = False
    run(broker)
    instance = another_instance(broker)
    send(instance, topic, "x", acks=Acks.ALL)
    assert holds_everything(broker, 2)
    zone_of(broker, 2).is_down = True
    send(instance, topic, "y", acks=Acks.ALL)
    send(instance, topic, "z", acks=Acks.ALL)
    assert status(broker, 2) is ZoneStatus.OUT_OF_SYNC


def test_zone_that_fails_again_while_it_catches_up_begins_anew(broker: Broker, clock: SteppedClock, topic: str) -> None:
    zone_of(broker, 2).is_down = False
    run(broker)
    clock.time_ms += MINUTE_MS
    zone_of(broker, 2).is_down = True
    instance = another_instance(broker)
    for _ in range(2):
        send(instance, topic, "missed")
    zone_of(broker, 2).is_down = False
    assert run(broker).in_sync == [], "its time begins with its new state"
    clock.time_ms += MINUTE_MS
    assert run(broker).in_sync == ["c"]
    assert holds_everything(broker, 2)


def test_zone_is_not_in_sync_while_a_zone_that_may_have_what_it_lacks_does_not_answer(
    broker: Broker, clock: SteppedClock, topic: str
) -> None:
    zone_of(broker, 2).is_down = False
    run(broker)
    clock.time_ms += MINUTE_MS
    only_in_b = max(named_segments(broker))
    for zone in (0, 2):
        del zone_of(broker, zone).segments[only_in_b]
    zone_of(broker, 1).is_down = True
    failed = run(broker)
    assert (failed.in_sync, failed.progress.failures, failed.progress.lost) == ([], 1, 0)
    zone_of(broker, 1).is_down = False
    assert run(broker).in_sync == ["c"]
    assert only_in_b in zone_of(broker, 2).segments


@pytest.mark.parametrize("harm", ["missing", "bad"])
def test_zone_is_in_sync_without_what_no_zone_has_and_that_is_told(
    broker: Broker, clock: SteppedClock, topic: str, harm: str
) -> None:
    zone_of(broker, 2).is_down = False
    run(broker)
    clock.time_ms += MINUTE_MS
    lost = sorted(named_segments(broker))[7]
    for zone in range(3):
        if harm == "missing" or zone == 2:
            del zone_of(broker, zone).segments[lost]
        else:
            zone_of(broker, zone).segments[lost] = b"\xff" * 90
    keeper = another_instance(broker)
    kept = keep_zones(keeper, BUDGET_MS)
    assert (kept.in_sync, kept.progress.lost, kept.progress.failures) == (["c"], 1, 0)
    assert broker.zone_states.get().of(broker.zone_names[2]).reason.endswith("but 1 refs whose segments no zone has")
    assert named_segments(broker) - set(zone_of(broker, 2).segments) == {lost}
    counts, told = keeper.events.take()
    [facts] = [facts for name, facts in told if name == "segment_lost"]
    assert counts["segment_lost"] == 1
    assert facts["segment"] == lost.hex()
    topic_id = broker.directory.look_up(topic).topic_id
    assert facts["partition"] == f"{topic_id}#0"
    [located] = [
        each for each in refs_of(broker, PartitionKey(topic_id, Partition(0)), 0) if each.ref.segment_id == lost
    ]
    assert (facts["base_offset"], facts["end_offset"]) == (located.base_offset, located.end_offset)


def test_what_was_truncated_while_it_was_looked_for_is_not_told_as_lost(
    broker: Broker, clock: SteppedClock, topic: str
) -> None:
    zone_of(broker, 2).is_down = False
    run(broker)
    clock.time_ms += MINUTE_MS
    key = PartitionKey(broker.directory.look_up(topic).topic_id, Partition(0))
    gone = next(refs_of(broker, key, 0)).ref.segment_id
    for zone in range(3):
        zone_of(broker, zone).segments.pop(gone, None)

    def get_whole(original: Any, segment_id: SegmentId) -> bytes | None:
        if segment_id == gone:
            truncate(another_instance(broker), topic, {0: 1})
        found: bytes | None = original(segment_id)
        return found

    zones: list[Any] = [Intercepted(zone, get_whole=get_whole) for zone in broker.zones]
    kept = run(broker, zones=zones)
    assert (kept.in_sync, kept.progress.lost, kept.progress.failures) == (["c"], 0, 0)


def empty(broker: Broker, zone: int) -> None:
    """Its bucket is deleted with all that it held, and made anew under its name."""
    zone_of(broker, zone).segments.clear()


def test_zone_whose_bucket_was_made_anew_is_in_sync_only_when_it_holds_everything_again(
    broker: Broker, clock: SteppedClock, topic: str
) -> None:
    """Refs of what was sent before c failed say that c has it."""
    assert any(segment in zone_of(broker, 2).segments for segment in named_segments(broker))
    empty(broker, 2)
    zone_of(broker, 2).is_down = False
    first = run(broker)
    assert first.progress.segments == 1 + 3 * TAIL_ROLL_REFS
    clock.time_ms += MINUTE_MS
    empty(broker, 2)  # again, after the refs have got their bits
    last = run(broker)
    assert (last.in_sync, last.progress.segments) == (["c"], 1 + 3 * TAIL_ROLL_REFS)
    assert holds_everything(broker, 2)
    zone_of(broker, 0).is_down = zone_of(broker, 1).is_down = True
    assert len(read_all(another_instance(broker), topic)) == 1 + 3 * TAIL_ROLL_REFS


def test_keeper_that_stays_warm_believes_no_list_of_an_earlier_pass(
    broker: Broker, clock: SteppedClock, topic: str
) -> None:
    keeper = another_instance(broker)
    zone_of(broker, 2).is_down = False
    keep_zones(keeper, BUDGET_MS)
    clock.time_ms += MINUTE_MS
    empty(broker, 2)
    assert keep_zones(keeper, BUDGET_MS).in_sync == ["c"]
    assert holds_everything(broker, 2)


def test_operator_lets_the_keeper_look_over_a_zone_that_is_in_sync(broker: Broker, clock: SteppedClock) -> None:
    name = new_topic(broker)
    for number in range(40):
        send(broker, name, str(number), acks=Acks.ALL)
    empty(broker, 1)
    move_zone_by_operator(broker, "b", ZoneStatus.CATCHING_UP, "somebody has emptied its bucket")
    assert status(broker, 1) is ZoneStatus.CATCHING_UP
    clock.time_ms += MINUTE_MS
    assert run(broker).in_sync == ["b"]
    zone_of(broker, 0).is_down = zone_of(broker, 2).is_down = True
    assert [value for _, value in read_all(another_instance(broker), name)] == [*map(str, range(40))]


def test_pass_that_finds_everything_in_place_reads_no_copy(broker: Broker, clock: SteppedClock, topic: str) -> None:
    zone_of(broker, 2).is_down = False
    run(broker)
    clock.time_ms += MINUTE_MS
    counts: Counter[str] = Counter()
    kept = keep_zones(counted_broker(broker, counts), BUDGET_MS)
    assert kept.in_sync == ["c"]
    assert counts["zone.get_whole"] == counts["zone.get"] == counts["zone.put"] == 0
    assert 0 < counts["zone.list_keys"] <= 1 + 3 * TAIL_ROLL_REFS


def test_operator_may_take_a_zone_out_in_the_middle_of_its_pass(
    broker: Broker, clock: SteppedClock, topic: str
) -> None:
    zone_of(broker, 2).is_down = False
    run(broker)
    clock.time_ms += MINUTE_MS

    def change(original: Any, old: Any, new: Any) -> None:
        move_zone_by_operator(another_instance(broker), "c", ZoneStatus.TAKEN_OUT, "stop")
        original(old, new)

    assert run(broker, zone_states=Intercepted(broker.zone_states, change=change)).in_sync == []
    assert status(broker, 2) is ZoneStatus.TAKEN_OUT
    clock.time_ms += MINUTE_MS
    assert run(broker).in_sync == []
    move_zone_by_operator(another_instance(broker), "c", ZoneStatus.CATCHING_UP, "go on")
    clock.time_ms += MINUTE_MS
    assert run(broker).in_sync == ["c"]


def test_pass_goes_on_in_the_next_run_when_its_time_is_over(broker: Broker, clock: SteppedClock) -> None:
    for name in ("a-topic", "b-topic"):
        new_topic(broker, name, partitions=2)
    zone_of(broker, 1).is_down = True
    for number in range(100):
        for name in ("a-topic", "b-topic"):
            send(broker, name, str(number), partition=number % 2)
    zone_of(broker, 1).is_down = False
    runs = 0
    while status(broker, 1) is not ZoneStatus.IN_SYNC:
        instance = another_instance(broker, log=Intercepted(broker.log, mark_stored=_taking(clock, 1)))
        keep_zones(instance, budget_ms=60)
        clock.time_ms += MINUTE_MS
        runs += 1
        assert runs < 20
    assert runs >= 3
    assert holds_everything(broker, 1)


def _taking(clock: SteppedClock, duration_ms: float) -> Callable[..., Any]:
    def call(original: Any, *arguments: Any) -> Any:
        clock.time_ms += duration_ms
        return original(*arguments)

    return call


@pytest.mark.parametrize("fault", [Killed(), LOST_ANSWER, UNAVAILABLE])
def test_keeper_that_ends_before_or_after_any_of_its_calls_harms_nothing(
    broker: Broker, clock: SteppedClock, topic: str, fault: BaseException
) -> None:
    """Each run gets one call further than the one before it, which ended there; the last gets through."""
    zone_of(broker, 2).is_down = False
    for after_effect in (False, True):
        for allowed in range(0, 400, 7):
            _run_until_fault(broker, fault, allowed, after_effect=after_effect)
            if status(broker, 2) is ZoneStatus.IN_SYNC:
                break
            clock.time_ms += MINUTE_MS
    while status(broker, 2) is not ZoneStatus.IN_SYNC:
        run(broker)
        clock.time_ms += MINUTE_MS
    assert holds_everything(broker, 2)
    assert [value for _, value in read_all(another_instance(broker), topic)] == [
        "before",
        *map(str, range(3 * TAIL_ROLL_REFS)),
    ]


def _run_until_fault(broker: Broker, fault: BaseException, allowed: int, *, after_effect: bool) -> None:
    lock = threading.Lock()
    left = allowed

    def hook(original: Any, *arguments: Any) -> Any:
        nonlocal left
        with lock:
            left -= 1
            is_fault = left < 0
        if is_fault and not after_effect:
            raise fault
        result = original(*arguments)
        if is_fault:
            raise fault
        return result

    store = Intercepted(broker.zone_states, get=hook, change=hook, get_pass=hook, save_pass=hook)
    zones: list[SegmentStore] = [
        Intercepted(zone, put=hook, get=hook, get_whole=hook, overwrite=hook, list_keys=hook)  # type: ignore[misc]
        for zone in broker.zones
    ]
    log = Intercepted(broker.log, heads=hook, pages=hook, mark_stored=hook)
    with contextlib.suppress(Killed, PenstockError):
        run(broker, zone_states=store, zones=zones, log=log)


def test_two_keepers_at_once_do_no_harm(broker: Broker, clock: SteppedClock, topic: str) -> None:
    zone_of(broker, 2).is_down = False
    run(broker)
    clock.time_ms += MINUTE_MS
    inner: list[Kept] = []

    def save_pass(original: Any, old: Any, new: Any) -> None:
        if not inner:
            inner.append(run(broker))
        original(old, new)

    outer = run(broker, zone_states=Intercepted(broker.zone_states, save_pass=save_pass))
    assert (inner[0].in_sync, outer.in_sync) == (["c"], [])
    assert broker.zone_states.get().version == 3


def test_zone_rejoins_while_appends_go_on(broker: Broker, clock: SteppedClock, topic: str) -> None:
    zone_of(broker, 2).is_down = False
    stop = threading.Event()
    sent: list[int] = [0, 0, 0]

    def append(number: int) -> None:
        instance = another_instance(broker)
        while not stop.is_set() and sent[number] < 100:
            send(instance, topic, f"{number}-{sent[number]}", acks=Acks.ALL)
            sent[number] += 1

    threads = [threading.Thread(target=append, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            run(broker)
            clock.time_ms += MINUTE_MS
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    run(broker)
    assert status(broker, 2) is ZoneStatus.IN_SYNC
    assert min(sent) > 0
    assert holds_everything(broker, 2)
    assert len(read_all(another_instance(broker), topic)) == 1 + 3 * TAIL_ROLL_REFS + sum(sent)


def test_operator_is_refused_where_the_keeper_decides(broker: Broker, topic: str) -> None:
    with pytest.raises(PenstockError, match="by itself") as caught:
        move_zone_by_operator(broker, "c", ZoneStatus.CATCHING_UP, "")
    assert caught.value.code is ErrorCode.ZONE_STATE_CONFLICT


@pytest.mark.parametrize("holder", range(3))
def test_reader_finds_the_one_good_copy_whatever_the_bits_and_states_say(broker: Broker, holder: int) -> None:
    """Bits name all zones, or none that has it; the others were emptied, and the holder may even be taken out."""
    name = new_topic(broker)
    for number in range(20):
        send(broker, name, str(number), acks=Acks.ALL)
    late = zone_of(broker, holder)
    late.is_down = True
    send(broker, name, "unconfirmed there")
    late.is_down = False
    late.segments.update(zone_of(broker, (holder + 1) % 3).segments)
    for zone in range(3):
        if zone != holder:
            empty(broker, zone)
    move_zone_by_operator(broker, broker.zone_names[holder], ZoneStatus.TAKEN_OUT, "read it last")
    reader = another_instance(broker)
    reader.zone_directory.look_up()
    assert [value for _, value in read_all(reader, name)] == [*map(str, range(20)), "unconfirmed there"]
