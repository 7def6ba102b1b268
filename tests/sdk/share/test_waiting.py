"""How a share consumer waits: the service answers, channels come and go, and wake-ups arrive."""

from typing import Any

from penstock.share.waiting import ShareWaiting
from penstock.wake_ups.events import WakeUp
from penstock_core.limits import SDK_SAFETY_NET_MS, SDK_WAKE_UP_FRUITLESS_MS, SDK_WAKE_UP_HOLD_MS

GROUP, TOPIC = "g" * 20, "t" * 8
NOW_MS = 1_000_000


def answer(*, is_armed: bool, **more: Any) -> dict[str, Any]:
    watch = [{"topic_id": TOPIC, "partition": number, "armed": is_armed} for number in (0, 1)]
    return {"watch": watch, "share_group_id": GROUP, "next_available_ms": None, **more}


def empty(waiting: ShareWaiting, now_ms: int, *, is_armed: bool = False, **more: Any) -> dict[str, Any]:
    """An acquire that finds nothing; its fields."""
    asked = dict(waiting.ask(now_ms))
    waiting.answered(answer(is_armed=is_armed, **more), has_records=False, now_ms=now_ms, chance=0.0)
    return asked


def covered() -> ShareWaiting:
    """A consumer that has found nothing, and whose channels are all subscribed to."""
    waiting = ShareWaiting(500, is_woken=True)
    empty(waiting, NOW_MS)
    cover(waiting)
    return waiting


def cover(waiting: ShareWaiting) -> None:
    assert waiting.watch is not None
    for leaf in waiting.watch.leaves:
        waiting.watch.subscribed(leaf)


def test_channels_are_those_of_the_partitions_and_of_the_group() -> None:
    waiting = ShareWaiting(500, is_woken=True)
    assert empty(waiting, NOW_MS) == {"wait_ms": 0, "arm": False}
    assert waiting.watch is not None
    assert waiting.watch.leaves == {(TOPIC, "0"), (TOPIC, "1"), (TOPIC, "all"), (GROUP, "share")}


def test_quiet_group_waits_for_the_connection_and_then_polls() -> None:
    waiting = ShareWaiting(500, is_woken=True)
    empty(waiting, NOW_MS)
    assert waiting.due_ms() == NOW_MS + SDK_WAKE_UP_HOLD_MS
    assert waiting.ask(NOW_MS + SDK_WAKE_UP_HOLD_MS) == {"wait_ms": 500, "arm": False}


def test_covered_group_is_armed_and_then_sleeps_under_the_safety_net() -> None:
    waiting = covered()
    assert waiting.due_ms() == 0
    assert empty(waiting, NOW_MS, is_armed=True) == {"wait_ms": 0, "arm": True}
    assert waiting.due_ms() == NOW_MS + SDK_SAFETY_NET_MS


def test_wake_up_of_a_partition_makes_it_due() -> None:
    waiting = covered()
    empty(waiting, NOW_MS, is_armed=True)
    waiting.woken(WakeUp("another", 0, None))
    assert waiting.due_ms() > NOW_MS
    waiting.woken(WakeUp(TOPIC, 1, None))
    assert waiting.due_ms() == 0


def test_wake_ups_that_find_nothing_cost_less_and_less() -> None:
    waiting = covered()
    empty(waiting, NOW_MS, is_armed=True)
    for wait_ms in (SDK_WAKE_UP_FRUITLESS_MS, 2 * SDK_WAKE_UP_FRUITLESS_MS, 4 * SDK_WAKE_UP_FRUITLESS_MS):
        waiting.woken(WakeUp(TOPIC, 0, None))
        empty(waiting, NOW_MS, is_armed=True)
        waiting.woken(WakeUp(TOPIC, 0, None))
        assert waiting.due_ms() == NOW_MS + wait_ms


def test_sleep_ends_when_a_record_becomes_available() -> None:
    waiting = covered()
    empty(waiting, NOW_MS, is_armed=True, next_available_ms=1_200)
    assert waiting.due_ms() == NOW_MS + 1_200


def test_group_that_cannot_be_armed_is_looked_at_when_the_service_says() -> None:
    waiting = covered()
    empty(waiting, NOW_MS, next_available_ms=200)
    assert waiting.due_ms() == NOW_MS + 200


def test_new_subscription_makes_the_group_due() -> None:
    waiting = covered()
    empty(waiting, NOW_MS, is_armed=True)
    assert waiting.watch is not None
    waiting.watch.lost()
    assert waiting.due_ms() > NOW_MS
    for leaf in waiting.watch.leaves:
        waiting.watch.subscribed(leaf)
    assert waiting.due_ms() == 0


def test_consumer_that_polls_watches_nothing() -> None:
    waiting = ShareWaiting(500, is_woken=False)
    assert empty(waiting, NOW_MS) == {"wait_ms": 500, "arm": False}
    assert waiting.watch is None
    assert waiting.due_ms() == 0


def test_consumers_that_wait_for_one_record_look_for_it_apart() -> None:
    due = []
    for chance in (0.0, 0.5, 1.0):
        waiting = covered()
        waiting.ask(NOW_MS)
        told = answer(is_armed=True, next_available_ms=1_000)
        waiting.answered(told, has_records=False, now_ms=NOW_MS, chance=chance)
        due.append(waiting.due_ms() - NOW_MS)
    assert due == [1_000, 1_125, 1_250]


def test_poll_that_the_service_has_cut_short_comes_again_when_it_says() -> None:
    waiting = ShareWaiting(500, is_woken=False)
    empty(waiting, NOW_MS, retry_after_ms=400)
    assert waiting.due_ms() == NOW_MS + 400
    empty(waiting, NOW_MS + 400)
    assert waiting.due_ms() == 0


def test_poll_without_a_connection_respects_a_cut_too_and_an_armed_group_sleeps() -> None:
    waiting = ShareWaiting(500, is_woken=True)
    empty(waiting, NOW_MS)
    now_ms = NOW_MS + SDK_WAKE_UP_HOLD_MS
    empty(waiting, now_ms, next_available_ms=10, retry_after_ms=400)
    assert waiting.due_ms() == now_ms + 400
    sleeping = covered()
    empty(sleeping, NOW_MS, is_armed=True, retry_after_ms=400)
    assert sleeping.due_ms() == NOW_MS + SDK_SAFETY_NET_MS


def test_group_with_records_lately_is_asked_in_a_rhythm_and_then_armed() -> None:
    waiting = ShareWaiting(500, 200, is_woken=True)
    now_ms, asked = NOW_MS, []
    for number in range(7):
        fields = dict(waiting.ask(now_ms))
        asked.append((now_ms - NOW_MS, fields["wait_ms"], fields["arm"]))
        has_records = number == 1
        waiting.answered(answer(is_armed=fields["arm"]), has_records=has_records, now_ms=now_ms, chance=0.0)
        if number == 0:
            cover(waiting)
        now_ms = max(now_ms, waiting.due_ms())
    paced = [(0, 0, False), (200, 0, False), (200, 0, False), (400, 0, False), (600, 0, False)]
    assert asked == [*paced, (800, 0, True), (800 + SDK_SAFETY_NET_MS, 0, True)]


def test_record_that_becomes_available_before_the_beat_is_asked_for_then() -> None:
    waiting = ShareWaiting(500, 200, is_woken=True)
    empty(waiting, NOW_MS, next_available_ms=70)
    assert waiting.due_ms() == NOW_MS + 70


def test_wake_up_during_the_rhythm_is_not_waited_for() -> None:
    waiting = ShareWaiting(500, 200, is_woken=True)
    empty(waiting, NOW_MS)
    waiting.woken(WakeUp(TOPIC, 1, None))
    assert waiting.due_ms() == 0
