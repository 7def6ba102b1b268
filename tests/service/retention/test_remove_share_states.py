"""The states of share groups go with their group or their topic, wherever the removal dies."""

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.ids import Partition
from penstock_core.limits import LOG_START_GRACE_MS, SHARE_GROUP_LIST_MAX
from penstock_core.share.share_state import ShareKey
from penstock_service.instance.instance import Instance
from penstock_service.retention.remove_topic import RetentionResult
from penstock_service.retention.retain import retain
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.share.admin.reset_share_group import delete_share_group
from penstock_service.share.dead_letters.redrive import RedriveWish, redrive
from penstock_service.topics.alter_topic import delete_topic
from tests.service.share.sharing import GROUP, new_group, take
from tests.support.interleaving import catch_kill, killed_at
from tests.support.refusals import refused
from tests.support.service import SteppedClock, another_instance, filled_topic, key_of, new_topic

PARTITIONS = 3


def run(instance: Instance) -> RetentionResult:
    return retain(instance, budget_ms=60_000.0)


def shared_topic(instance: Instance, name: str = "orders") -> list[ShareKey]:
    """A topic of which the group has handed out records of each partition, and the keys of its states."""
    filled_topic(instance, name, partitions=PARTITIONS, records=2)
    group_id = new_group(instance, name)
    for _ in range(PARTITIONS):
        take(instance, 2)
    topic_id = key_of(instance, name).topic_id
    keys = [ShareKey(group_id, topic_id, Partition(number)) for number in range(PARTITIONS)]
    assert instance.stores.share.find_states(keys).keys() == {*keys}
    return keys


def removed_topics(instance: Instance, clock: SteppedClock) -> None:
    """Retention runs, until the grace of deleted topics is over."""
    for _ in range(3):
        run(another_instance(instance))
        clock.time_ms += LOG_START_GRACE_MS
    assert list(instance.stores.topics.deleted()) == []


def expect_nothing_left(instance: Instance, keys: list[ShareKey]) -> None:
    assert instance.stores.share.find_states(keys) == {}
    assert instance.stores.share.hidden_groups("", 9) == []


def test_deletion_that_comes_to_its_end_leaves_nothing(instance: Instance) -> None:
    keys = shared_topic(instance)
    delete_share_group(instance, GROUP)
    expect_nothing_left(instance, keys)


@pytest.mark.parametrize("is_applied", [True, False])
@pytest.mark.parametrize("place", range(8))
def test_retention_ends_the_deletion_of_a_group_that_died(instance: Instance, place: int, is_applied: bool) -> None:
    keys = shared_topic(instance)
    with catch_kill() as killed:
        delete_share_group(killed_at(instance, place, is_applied=is_applied), GROUP)
    assert killed == ([True] if place < 7 else [])
    if instance.stores.share.list_groups("", 1):
        delete_share_group(another_instance(instance), GROUP)
    run(instance)
    expect_nothing_left(instance, keys)


@pytest.mark.parametrize("is_applied", [True, False])
@pytest.mark.parametrize("place", range(8))
def test_next_run_ends_what_a_run_that_died_has_begun(instance: Instance, place: int, is_applied: bool) -> None:
    keys = shared_topic(instance)
    group = instance.stores.share.list_groups("", 1)[0]
    instance.stores.share.delete_group(group)
    for offset in range(12):  # the calls before the removal of groups are others each time
        with catch_kill():
            run(killed_at(instance, place + offset, is_applied=is_applied))
    run(instance)
    expect_nothing_left(instance, keys)


def test_states_of_a_deleted_topic_go_with_it_and_the_group_keeps_those_of_others(
    instance: Instance, clock: SteppedClock
) -> None:
    filled_topic(instance, "returns", partitions=1, records=2)
    keys = shared_topic(instance)
    put_share_group(instance, GROUP, ["orders", "returns"], {})
    assert take(another_instance(instance), 2).partitions
    kept = ShareKey(keys[0].share_group_id, key_of(instance, "returns").topic_id, Partition(0))
    delete_topic(instance, "orders")
    removed_topics(instance, clock)
    expect_nothing_left(instance, keys)
    assert kept in instance.stores.share.find_states([kept])


@pytest.mark.parametrize("is_group_first", [True, False])
def test_group_and_topic_that_are_deleted_both_leave_nothing(
    instance: Instance, clock: SteppedClock, is_group_first: bool
) -> None:
    keys = shared_topic(instance)
    if is_group_first:
        with catch_kill():
            delete_share_group(killed_at(instance, 1, is_applied=True), GROUP)
        delete_topic(instance, "orders")
    else:
        delete_topic(instance, "orders")
        delete_share_group(another_instance(instance), GROUP)
        assert instance.stores.share.hidden_groups("", 9), "the note waits for the topic's removal"
    removed_topics(instance, clock)
    run(instance)
    expect_nothing_left(instance, keys)


def test_hidden_group_of_a_redrive_goes_with_its_topic(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, "orders.dead", partitions=1, records=2)
    new_topic(instance, "again")
    redrive(instance, "orders.dead", RedriveWish(to="again", records_max=9))
    [hidden] = instance.stores.share.hidden_groups("", 9)
    key = ShareKey(hidden.share_group_id, key_of(instance, "orders.dead").topic_id, Partition(0))
    assert key in instance.stores.share.find_states([key])
    delete_topic(instance, "orders.dead")
    removed_topics(instance, clock)
    expect_nothing_left(instance, [key])


def test_more_groups_than_a_page_are_looked_at(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, partitions=1, records=1)
    for number in range(SHARE_GROUP_LIST_MAX + 2):
        put_share_group(instance, f"g{number:03}", ["orders"], {"start": "latest"})
    topic_id = key_of(instance, "orders").topic_id
    groups = instance.stores.share.list_groups("", 2 * SHARE_GROUP_LIST_MAX)
    keys = [ShareKey(group.share_group_id, topic_id, Partition(0)) for group in groups]
    assert len(instance.stores.share.find_states(keys)) == SHARE_GROUP_LIST_MAX + 2
    delete_topic(instance, "orders")
    removed_topics(instance, clock)
    assert instance.stores.share.find_states(keys) == {}


def test_run_removes_what_a_deletion_has_left(instance: Instance) -> None:
    keys = shared_topic(instance)
    instance.stores.share.delete_group(instance.stores.share.list_groups("", 1)[0])
    refused(ErrorCode.UNKNOWN_SHARE_GROUP, lambda: take(another_instance(instance)))
    assert run(instance).failures == 0
    expect_nothing_left(instance, keys)


def test_states_in_a_topic_that_the_group_has_left_go_with_the_topic(instance: Instance, clock: SteppedClock) -> None:
    keys = shared_topic(instance)
    new_topic(instance, "returns")
    put_share_group(instance, GROUP, ["returns"], {})
    assert instance.stores.share.find_states(keys).keys() == {*keys}, "the group goes on there if it comes back"
    delete_topic(instance, "orders")
    removed_topics(instance, clock)
    expect_nothing_left(instance, keys)
    [group] = instance.stores.share.list_groups("", 9)
    assert group.topic_ids == {key_of(instance, "returns").topic_id}


def test_states_in_a_topic_that_the_group_has_left_go_with_the_group(instance: Instance) -> None:
    keys = shared_topic(instance)
    new_topic(instance, "returns")
    put_share_group(instance, GROUP, ["returns"], {})
    delete_share_group(instance, GROUP)
    run(instance)
    expect_nothing_left(instance, keys)


@pytest.mark.parametrize("place", range(9))
def test_states_in_a_topic_that_was_made_anew_go_with_the_old_one(
    instance: Instance, clock: SteppedClock, place: int
) -> None:
    keys = shared_topic(instance)
    delete_topic(instance, "orders")
    filled_topic(instance, "orders", partitions=PARTITIONS, records=2)
    put_share_group(instance, GROUP, ["orders"], {})
    assert take(instance, 2).partitions
    for _ in range(2):
        run(another_instance(instance))
        clock.time_ms += LOG_START_GRACE_MS
    with catch_kill():
        run(killed_at(another_instance(instance), place, is_applied=bool(place % 2)))
    removed_topics(instance, clock)
    expect_nothing_left(instance, keys)
    [group] = instance.stores.share.list_groups("", 9)
    assert group.left_topics == frozenset()


def test_group_comes_back_to_a_topic_where_it_left_off(instance: Instance) -> None:
    keys = shared_topic(instance)
    new_topic(instance, "returns")
    put_share_group(instance, GROUP, ["returns"], {})
    group, _ = put_share_group(instance, GROUP, ["orders"], {})
    assert group.left_topics == {key_of(instance, "returns").topic_id}
    assert instance.stores.share.find_states(keys).keys() == {*keys}


def test_notes_have_a_bound(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_service.share.share_partitions.SHARE_LEFT_TOPICS_MAX", 1)
    shared_topic(instance)
    for name in ("returns", "bills"):
        new_topic(instance, name)
    put_share_group(instance, GROUP, ["returns"], {})
    refused(ErrorCode.INVALID_CONFIG, lambda: put_share_group(instance, GROUP, ["bills"], {}))
