"""The lock of a lane that pushes to a mirror is short, and is renewed; two pushers at once harm nothing."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from penstock_core.errors import PenstockError
from penstock_core.limits import MIRROR_HIDE_MS, MIRROR_LOCK_MS, MIRROR_RENEW_MS, PUSH_LOCK_MS, PUSH_SLICE_MS
from penstock_core.mirror.push import MirrorPush
from penstock_core.push.lane import LaneState
from penstock_service.adapters.memory.messages import MemoryTargets
from penstock_service.mirror import push_log
from penstock_service.push.deliver import Ending
from tests.service.mirror.stages import Stages
from tests.support.push_deliveries import Deliveries
from tests.support.service import UNAVAILABLE, Intercepted, Killed, with_stores


def before_pushes(stages: Stages, do: Callable[[MirrorPush], None]) -> None:
    """Calls `do` with each push before the mirror gets it."""
    targets = stages.source.instance.stores.targets
    assert isinstance(targets, MemoryTargets)
    answer = targets.stage

    def with_more(target: Any, push: MirrorPush) -> Any:
        do(push)
        return answer(target, push)

    targets.stage = with_more


def lane_of(stages: Stages) -> LaneState:
    lane = stages.source.lane()
    assert lane is not None
    return lane


def killed_once(stages: Stages) -> None:
    """The delivery of the next push dies before the push leaves."""
    left = [Killed]

    def die(_push: MirrorPush) -> None:
        if left:
            raise left.pop()

    before_pushes(stages, die)
    try:
        stages.source.run_once()
    except Killed:
        return
    raise AssertionError("it did not push")


def test_push_whose_delivery_died_goes_on_within_seconds() -> None:
    stages = Stages()
    stages.run()
    stages.source.append("a")
    died_ms = stages.clock.now_ms()
    killed_once(stages)
    assert lane_of(stages).locked_until_ms == died_ms + MIRROR_LOCK_MS
    assert stages.source.queue.next_visible_ms == died_ms + MIRROR_HIDE_MS > lane_of(stages).locked_until_ms
    stages.run()
    assert stages.clock.now_ms() == died_ms + MIRROR_HIDE_MS
    assert stages.logs()[0] == stages.logs()[1] != []


def test_message_of_an_older_release_is_hidden_for_as_long_as_the_lock_lasts() -> None:
    stages = Stages()
    stages.run()
    stages.source.append("a")
    stages.source.queue.delete(stages.source.queue.receive()[0].receipt)
    stages.source.queue.send([stages.source.message()])  # it does not tell of a mirror
    began_ms = stages.clock.now_ms()
    killed_once(stages)
    assert stages.source.queue.next_visible_ms == began_ms + MIRROR_LOCK_MS


def test_delivery_that_lasts_renews_its_lock_and_hides_its_message() -> None:
    stages = Stages()
    stages.run()
    locks: list[int] = []
    end_ms = stages.clock.now_ms() + PUSH_SLICE_MS - MIRROR_RENEW_MS

    def take_long(_push: MirrorPush) -> None:
        now_ms = stages.clock.now_ms()
        visible_ms = stages.source.queue.next_visible_ms
        assert visible_ms is not None
        locks.append(min(lane_of(stages).locked_until_ms, visible_ms) - now_ms)
        stages.clock.time_ms += MIRROR_RENEW_MS
        if now_ms < end_ms:
            stages.source.append("more")

    before_pushes(stages, take_long)
    stages.source.append("a")
    assert stages.source.run_once() is Ending.DELETE
    assert len(locks) > PUSH_SLICE_MS / MIRROR_RENEW_MS / 2
    assert min(locks) >= MIRROR_LOCK_MS - MIRROR_RENEW_MS
    assert (lane_of(stages).deaths, stages.source.queue.messages) == (0, [])


def test_push_that_outlasts_its_lock_is_taken_over_and_appended_once() -> None:
    """The first delivery stops then, and leaves its message to the one that has it now."""
    stages = Stages()
    stages.run()
    endings: list[Ending | None] = []

    def be_overtaken(_push: MirrorPush) -> None:
        if not endings:
            endings.append(None)
            stages.clock.time_ms += MIRROR_HIDE_MS
            endings[0] = stages.source.run_once()
            stages.source.append("b")

    before_pushes(stages, be_overtaken)
    stages.source.append("a")
    assert (stages.source.run_once(), endings) == (Ending.KEEP, [Ending.DELETE])
    assert [push.base_offset for push in stages.pushes] == [0, 0]
    stages.run()
    assert stages.logs()[0] == stages.logs()[1]
    assert [values for *_, values in stages.logs()[1]] == [[b"a"], [b"b"]]


def test_delivery_whose_lock_is_over_deletes_no_message() -> None:
    """Another one may hold the lane by it, and SQS may take an old receipt."""
    stages = Stages()
    stages.run()
    stages.source.append("a")
    instance = stages.source.instance

    def arm_push(arm: Any, key: Any, next_offset: Any) -> Any:
        stages.clock.time_ms += MIRROR_LOCK_MS
        return arm(key, next_offset)

    slow = with_stores(instance, log=Intercepted(instance.stores.log, arm_push=arm_push))
    assert stages.source.run_once(slow) is Ending.KEEP
    stages.run()
    assert stages.source.queue.messages == []


def test_delivery_that_renews_a_lock_that_was_over_deletes_no_message() -> None:
    """Its message was to be had meanwhile: who received it may take the lane by it."""
    stages = Stages()
    stages.run()
    pushes: list[MirrorPush] = []

    def take_long(push: MirrorPush) -> None:
        if not pushes:
            stages.clock.time_ms += MIRROR_HIDE_MS  # no other delivery comes meanwhile, so the renewal succeeds
        pushes.append(push)

    before_pushes(stages, take_long)
    stages.source.append("a")
    assert stages.source.run_once() is Ending.KEEP
    assert lane_of(stages).locked_until_ms == 0
    stages.run()
    assert stages.source.queue.messages == []


def test_delivery_that_fails_once_its_lock_is_over_hides_no_message() -> None:
    stages = Stages()
    stages.run()
    stages.source.append("a")
    instance, began_ms = stages.source.instance, stages.clock.now_ms()

    def heads(_heads: Any, _keys: Any) -> Any:
        stages.clock.time_ms += MIRROR_LOCK_MS
        raise UNAVAILABLE

    slow = with_stores(instance, log=Intercepted(instance.stores.log, heads=heads))
    assert stages.source.run_once(slow) is Ending.KEEP
    assert stages.source.queue.next_visible_ms == began_ms + MIRROR_HIDE_MS
    stages.run()
    assert stages.logs()[0] == stages.logs()[1] != []


def test_lane_that_was_lost_is_worked_on_no_more() -> None:
    stages = Stages(partitions=2)
    stages.run()
    stages.source.append("a")
    stages.source.append("b", partition=1)
    pushed: list[int] = []

    def lose(push: MirrorPush) -> None:
        pushed.append(push.partition)
        if len(pushed) == 1:
            stages.clock.time_ms += MIRROR_HIDE_MS
            killed_once(stages)

    before_pushes(stages, lose)
    assert stages.source.run_once() is Ending.KEEP
    assert len(pushed) == 1, "it pushed its other partition, too"
    stages.run()
    assert [stages.logs(number)[0] == stages.logs(number)[1] for number in (0, 1)] == [True, True]


def test_deaths_of_pushes_that_get_nothing_done_make_the_lock_longer() -> None:
    stages = Stages()
    stages.run()
    stages.source.append("a")
    locks = []
    for _ in range(8):
        killed_once(stages)
        locks.append(lane_of(stages).locked_until_ms - stages.clock.now_ms())
        visible_ms = stages.source.queue.next_visible_ms
        assert visible_ms is not None
        stages.clock.time_ms = visible_ms
    assert locks == [*(min(PUSH_LOCK_MS, MIRROR_LOCK_MS << more) for more in (0, 0, 1, 2, 3, 4, 5, 6))]
    stages.run()
    assert lane_of(stages).deaths == 0


def test_other_targets_keep_a_lock_that_outlasts_each_delivery() -> None:
    deliveries = Deliveries()
    deliveries.append("a")
    deliveries.die()
    lane = deliveries.lane()
    assert lane is not None
    assert lane.locked_until_ms == deliveries.clock.now_ms() + PUSH_LOCK_MS
    assert deliveries.queue.next_visible_ms == deliveries.clock.now_ms() + 75_000


def test_delivery_whose_message_came_again_before_it_began_takes_no_lane() -> None:
    """The other one has deleted the message: nothing would wake the lane if the first one died with it."""
    stages = Stages()
    stages.run()
    stages.source.append("a")
    instance = stages.source.instance
    store = instance.stores.push

    def get_subscription(get: Any, name: Any) -> Any:
        found = get(name)
        stages.clock.time_ms += MIRROR_HIDE_MS
        assert stages.source.run_once() is Ending.DELETE
        return found

    def die(*_: Any) -> None:
        raise Killed

    late = with_stores(instance, push=Intercepted(store, get_subscription=get_subscription, find_deliveries=die))
    with contextlib.suppress(PenstockError, Killed):
        stages.source.run_once(late)
    stages.source.append("b")
    stages.run()
    assert [values for *_, values in stages.logs()[1]] == [[b"a"], [b"b"]]


def test_renewal_of_a_delivery_that_got_nothing_done_leaves_the_longer_lock() -> None:
    stages = Stages()
    stages.run()
    stages.source.append("a")
    instance = stages.source.instance

    def heads(read: Any, keys: Any) -> Any:
        stages.clock.time_ms += MIRROR_RENEW_MS
        return read(keys)

    slow = with_stores(instance, log=Intercepted(instance.stores.log, heads=heads))

    def die(_push: MirrorPush) -> None:
        raise Killed

    before_pushes(stages, die)
    deaths = []
    for _ in range(5):
        with pytest.raises(Killed):
            stages.source.run_once(slow)
        deaths.append(lane_of(stages).deaths)
        assert lane_of(stages).locked_until_ms - stages.clock.now_ms() >= MIRROR_LOCK_MS - MIRROR_RENEW_MS
        visible_ms = stages.source.queue.next_visible_ms
        assert visible_ms is not None
        stages.clock.time_ms = max(visible_ms, lane_of(stages).locked_until_ms)
    assert deaths == [0, 1, 2, 3, 4]


def test_partitions_of_a_lane_have_their_turns_however_often_its_lock_was_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(push_log, "MIRROR_PUSH_REFS", 1)
    stages = Stages(partitions=2)
    stages.run()
    pushed: list[int] = []

    def take_long(push: MirrorPush) -> None:
        pushed.append(push.partition)
        stages.clock.time_ms += MIRROR_RENEW_MS

    before_pushes(stages, take_long)
    for partition in (0, 1):
        for number in range(80):  # of eight slices
            stages.source.append(str(number), partition=partition)
    stages.run()
    assert max(pushed.index(partition) for partition in (0, 1)) <= 5 * PUSH_SLICE_MS / MIRROR_RENEW_MS


def test_death_behind_the_first_push_that_succeeds_costs_seconds_again() -> None:
    stages = Stages()
    stages.run()
    stages.source.append("a")
    for _ in range(7):
        killed_once(stages)
        visible_ms = stages.source.queue.next_visible_ms
        assert visible_ms is not None
        stages.clock.time_ms = visible_ms

    def die_at_the_second(push: MirrorPush) -> None:
        if push.base_offset:
            raise Killed
        stages.source.append("b")

    before_pushes(stages, die_at_the_second)
    died_ms = stages.clock.now_ms()
    with pytest.raises(Killed):
        stages.source.run_once()
    assert lane_of(stages).locked_until_ms == died_ms + MIRROR_LOCK_MS
    assert stages.source.queue.next_visible_ms == died_ms + MIRROR_LOCK_MS
