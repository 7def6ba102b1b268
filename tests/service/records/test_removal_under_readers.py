"""A reader in the middle of retention, page deletion and sweep gets its data or OFFSET_OUT_OF_RANGE, nothing else.

The removals here come without their graces, as they would for a function that runs longer than any may.
"""

from collections.abc import Callable
from typing import TypeVar

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset
from penstock_service.instance.instance import Instance
from penstock_service.retention.retain import retain
from penstock_service.retention.sweep import sweep
from penstock_service.topics.alter_topic import delete_topic
from penstock_service.topics.list_offsets import list_offsets
from tests.support.expiring import NEW, OLD, old_and_new, put
from tests.support.interleaving import interrupted_before
from tests.support.service import (
    Intercepted,
    SteppedClock,
    another_instance,
    ask,
    key_of,
    new_topic,
    patient_instance,
    values_of,
)

BUDGET_MS = 1_000_000.0
PLACES = [*range(8), 20, 52]

T = TypeVar("T")


def remove(instance: Instance, clock: SteppedClock) -> None:
    """Expire all old records at once: raise the log start, and delete pages and objects."""
    for _ in range(2):
        clock.time_ms += 1
        retain(instance, budget_ms=BUDGET_MS, grace_ms=0)
    sweep(instance, budget_ms=BUDGET_MS, grace_ms=0, log_start_grace_ms=0)


def delete(instance: Instance, clock: SteppedClock) -> None:
    delete_topic(instance, "orders")
    remove(instance, clock)


def recreate(instance: Instance, clock: SteppedClock) -> None:
    delete(instance, clock)
    put(instance, new_topic(instance), 3, clock.now_ms())


def reader_that_meets(
    act: Callable[[Instance, SteppedClock], None], place: int
) -> tuple[Instance, list[tuple[int, str]]]:
    clock = SteppedClock()
    instance = patient_instance(clock)
    old_and_new(instance, clock)
    everything = values_of(ask(instance, "orders", 0))
    return interrupted_before(instance, place, lambda: act(another_instance(instance), clock)), everything


def outcome(call: Callable[[], T]) -> T | PenstockError:
    try:
        return call()
    except PenstockError as error:
        return error


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0, 17, OLD - 1, OLD + 3])
def test_fetch_answers_data_or_the_new_bounds(offset: int) -> None:
    outcomes = set()
    for place in PLACES:
        reader, everything = reader_that_meets(remove, place)
        fetched = outcome(lambda reader=reader: ask(reader, "orders", offset))  # type: ignore[misc]
        if isinstance(fetched, PenstockError):
            assert fetched.code is ErrorCode.OFFSET_OUT_OF_RANGE, f"at call {place}: {fetched}"
            bounds = {name: fetched.facts[name] for name in ("log_start_offset", "high_watermark")}
            assert bounds == {"log_start_offset": OLD, "high_watermark": OLD + NEW}
            assert offset < OLD
            outcomes.add("bounds")
        else:
            assert fetched.next_offset > offset
            assert values_of(fetched, offset) == everything[offset : fetched.next_offset]
            outcomes.add("data")
    assert outcomes == ({"data", "bounds"} if offset < OLD else {"data"})


@pytest.mark.slow
@pytest.mark.parametrize("act", [delete, recreate])
@pytest.mark.parametrize("offset", [0, OLD + 3])
def test_fetch_answers_data_or_that_the_topic_is_gone(
    act: Callable[[Instance, SteppedClock], None], offset: int
) -> None:
    for place in PLACES:
        reader, everything = reader_that_meets(act, place)
        fetched = outcome(lambda reader=reader: ask(reader, "orders", offset))  # type: ignore[misc]
        if isinstance(fetched, PenstockError):
            told = (ErrorCode.UNKNOWN_TOPIC, ErrorCode.OFFSET_OUT_OF_RANGE)
            assert fetched.code in told, f"at call {place}: {fetched}"
        else:
            found = values_of(fetched, offset)
            if fetched.high_watermark == OLD + NEW:
                assert found == everything[offset : fetched.next_offset]
            else:
                assert (fetched.high_watermark, len(found)) == (3, 3), "the new topic, from its start"


@pytest.mark.slow
@pytest.mark.parametrize("is_old", [True, False])
def test_offsets_by_time_answer_what_is_there_before_or_after(is_old: bool) -> None:
    for place in PLACES:
        reader, everything = reader_that_meets(remove, place)
        timestamp_ms = int(everything[0 if is_old else OLD][1].split("/")[0])
        [found] = list_offsets(reader, "orders", timestamp_ms, 0)
        assert not isinstance(found, PenstockError), f"at call {place}: {found}"
        assert found.offset in ((0, OLD) if is_old else (OLD,))


def test_offsets_by_time_say_that_the_topic_is_gone(clock: SteppedClock) -> None:
    for place in PLACES[1:]:
        reader, _ = reader_that_meets(delete, place)
        found = outcome(lambda reader=reader: list_offsets(reader, "orders", 0, 0)[0])  # type: ignore[misc]
        assert not isinstance(found, PenstockError) or found.code is ErrorCode.UNKNOWN_TOPIC


def test_damage_above_the_log_start_is_still_told_as_such(instance: Instance, clock: SteppedClock) -> None:
    topic = old_and_new(instance, clock)
    key = key_of(instance, topic)
    retain(instance, budget_ms=BUDGET_MS)
    last = instance.stores.log.pages(key, Offset(0), 9)[-1]
    instance.stores.log.delete_page(key, last.end_offset)
    with pytest.raises(PenstockError) as caught:
        ask(instance, topic, OLD)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT
    [found] = list_offsets(instance, topic, clock.now_ms(), 0)
    assert isinstance(found, PenstockError)
    assert found.code is ErrorCode.CORRUPT_SEGMENT


def test_page_that_is_missing_in_the_middle_is_never_skipped(instance: Instance, clock: SteppedClock) -> None:
    topic = old_and_new(instance, clock)
    key = key_of(instance, topic)
    instance.stores.log.delete_page(key, instance.stores.log.pages(key, Offset(0), 9)[1].end_offset)
    with pytest.raises(PenstockError, match="CORRUPT_SEGMENT"):
        ask(instance, topic, 20)


def test_failure_is_told_as_it_was_when_the_head_cannot_be_read_again(instance: Instance, clock: SteppedClock) -> None:
    topic = old_and_new(instance, clock)
    key = key_of(instance, topic)
    instance.stores.log.delete_page(key, instance.stores.log.pages(key, Offset(0), 9)[0].end_offset)
    calls: list[int] = []

    def once(original: Callable[..., object], *arguments: object) -> object:
        calls.append(1)
        if len(calls) > 1:
            raise PenstockError(ErrorCode.THROTTLED, "slow down")
        return original(*arguments)

    with pytest.raises(PenstockError, match="CORRUPT_SEGMENT"):
        ask(another_instance(instance, log=Intercepted(instance.stores.log, heads=once)), topic, 0)
    assert len(calls) == 2
