"""The contract of ShareStore, held by the adapters in memory, with a database below, and on DynamoDB."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moto import mock_aws

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import GroupName, LockNonce, Offset, Partition, ShareGroupId, TopicId, TopicName
from penstock_core.limits import SHARE_BEGINS_MAX
from penstock_core.share.acknowledge import AckType, plan_acknowledge
from penstock_core.share.acquire import plan_acquire
from penstock_core.share.bury import plan_bury
from penstock_core.share.draft import ShareOutcome, ShareUpdate, apply, arming
from penstock_core.share.read_first import plan_read_first
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_group import (
    ShareGroup,
    ShareGroupConfig,
    deletion_note,
    hidden_name,
    new_share_group_config,
)
from penstock_core.share.share_state import ShareKey, ShareState, Wait
from penstock_service.adapters.botocore_drivers import BotocoreDriver
from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.dynamodb.share import DynamoDbShareStore
from penstock_service.adapters.memory.service import memory_stores
from penstock_service.adapters.system import SystemClock, SystemEntropy
from penstock_service.ports.share import ShareStore
from tests.contract.conftest import Ports, create_table
from tests.core.share.share_samples import NONCE, NOW_MS, OTHER, PLAIN, WITH_DEAD_LETTERS, ack, held, log, request

KEY = ShareKey(ShareGroupId("ab" * 10), TopicId("t0"), Partition(3))
ELSEWHERE = KEY._replace(partition=Partition(4))
GROUP = ShareGroup(
    name=GroupName("workers"),
    share_group_id=KEY.share_group_id,
    topics={TopicName("orders"): KEY.topic_id},
    config=new_share_group_config({"dead_letter_topic": "orders.dead", "ordering": "key"}),
)


def state_of(ports: Ports) -> ShareState:
    return ports.share.find_states([KEY])[KEY]


def acquire(ports: Ports, nonce: LockNonce = NONCE, records_max: int = 10) -> ShareOutcome:
    plan = plan_acquire(state_of(ports), PLAIN, log(), request(nonce, records_max))
    assert plan.update is not None
    return ports.share.update(KEY, plan.update)


@pytest.fixture
def ready(ports: Ports) -> Ports:
    assert ports.share.create_state(KEY, Offset(5)) == ShareState(position=Offset(5))
    return ports


def expect_conflict(ports: Ports, old: ShareGroup | None, new: ShareGroup | None) -> None:
    with pytest.raises(PenstockError) as caught:
        _change(ports, old, new)
    assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    assert not caught.value.maybe_applied


def _change(ports: Ports, old: ShareGroup | None, new: ShareGroup | None) -> None:
    if new is not None:
        ports.share.change_group(old, new)
    elif old is not None:
        ports.share.delete_group(old)


def test_group_is_stored_once_and_changed_from_the_version_that_was_seen(ports: Ports) -> None:
    assert ports.share.get_group(GROUP.name) is None
    ports.share.change_group(None, GROUP)
    assert ports.share.get_group(GROUP.name) == GROUP
    expect_conflict(ports, None, GROUP)
    second = replace(GROUP, version=1, topics={TopicName("bills"): TopicId("t1")})
    ports.share.change_group(GROUP, second)
    expect_conflict(ports, GROUP, replace(second, version=2))
    assert ports.share.get_group(GROUP.name) == second


def test_expired_records_are_added_up_and_survive_a_reset(ready: Ports) -> None:
    first = acquire(ready).after
    assert first is not None
    expired = replace(ack(AckType.ACCEPT, (5, 8)), is_expired=True)
    update = plan_acknowledge(first, PLAIN, [expired], NOW_MS).update
    assert update is not None
    outcome = ready.share.update(KEY, update)
    assert outcome.after == apply(first, update) == state_of(ready)
    assert state_of(ready).expired == 3
    assert ready.share.update(KEY, update).after is None, "once"
    assert ready.share.update(KEY, ShareUpdate(generation=0, expired=4)).after == state_of(ready)
    assert state_of(ready).expired == 7
    assert ready.share.reset(KEY, state_of(ready), Offset(0))
    assert (state_of(ready).generation, state_of(ready).expired) == (1, 7)


def test_group_notes_the_topics_that_it_has_left_until_they_are_taken_out(ports: Ports) -> None:
    ports.share.change_group(None, GROUP)
    moved = replace(GROUP, version=1, topics={TopicName("bills"): TopicId("t1")}).succeeding(GROUP)
    ports.share.change_group(GROUP, moved)
    assert ports.share.get_group(GROUP.name) == moved
    assert moved.left_topics == {*GROUP.topics.values()}
    cleared = moved
    for topic_id in GROUP.topics.values():
        cleared = cleared.without(topic_id)
    ports.share.change_group(moved, cleared)
    assert ports.share.get_group(GROUP.name) == replace(moved, version=cleared.version, left_topics=frozenset())


def test_group_is_deleted_at_the_version_that_was_seen(ports: Ports) -> None:
    ports.share.change_group(None, GROUP)
    expect_conflict(ports, replace(GROUP, version=1), None)
    expect_conflict(ports, replace(GROUP, share_group_id=ShareGroupId("cd" * 10)), None)
    ports.share.delete_group(GROUP)
    assert ports.share.get_group(GROUP.name) is None
    expect_conflict(ports, GROUP, None)


def test_deleted_group_leaves_a_hidden_note_until_it_is_forgotten(ports: Ports) -> None:
    other = replace(GROUP, name=hidden_name("redrive.t0"), share_group_id=ShareGroupId("cd" * 10))
    for group in (GROUP, other, replace(GROUP, name=GroupName("visible"))):
        ports.share.change_group(None, group)
    ports.share.delete_group(GROUP)
    assert ports.share.hidden_groups("", 9) == [deletion_note(GROUP), other]
    assert ports.share.hidden_groups(deletion_note(GROUP).name, 9) == [other]
    assert ports.share.hidden_groups("", 1) == [deletion_note(GROUP)]
    assert [group.name for group in ports.share.list_groups("", 9)] == ["visible"]
    for _ in range(2):
        ports.share.forget_group(deletion_note(GROUP))
    assert ports.share.hidden_groups("", 9) == [other]


def test_state_begins_only_while_its_group_is_there(ports: Ports) -> None:
    begin = partial(ports.share.begin_state, GROUP.name, KEY)
    assert begin(Offset(7)) is None
    ports.share.change_group(None, GROUP)
    assert begin(Offset(7)) == ShareState(position=Offset(7))
    assert begin(Offset(9)) == ShareState(position=Offset(7)), "it is there already"
    ports.share.delete_group(GROUP)
    ports.share.delete_state(KEY)
    assert begin(Offset(7)) is None
    ports.share.change_group(None, replace(GROUP, share_group_id=ShareGroupId("cd" * 10)))
    assert begin(Offset(7)) is None, "a group of the same name is another one"
    assert ports.share.find_states([KEY]) == {}


def test_states_begin_at_once_and_those_that_are_there_stay(ports: Ports) -> None:
    keys = [ShareKey(GROUP.share_group_id, KEY.topic_id, Partition(number)) for number in range(SHARE_BEGINS_MAX)]
    begins = {key: Offset(key.partition) for key in keys}
    assert not ports.share.begin_states(GROUP.name, begins)
    assert ports.share.find_states(keys) == {}
    ports.share.change_group(None, GROUP)
    ports.share.create_state(keys[7], Offset(70))
    for _ in range(2):
        assert ports.share.begin_states(GROUP.name, begins)
        assert {key: state.position for key, state in ports.share.find_states(keys).items()} == {
            **begins,
            keys[7]: 70,
        }
    other = replace(GROUP, name=GroupName("other"), share_group_id=ShareGroupId("cd" * 10))
    ports.share.change_group(None, other)
    assert not ports.share.begin_states(other.name, begins), "the states are those of another group"


def test_groups_are_listed_by_name_in_pages_without_hidden_ones(ports: Ports) -> None:
    names = [GroupName(name) for name in ("b", "a", "-c", "Z")]
    for name in (*names, hidden_name("redrive#t0")):
        ports.share.change_group(None, replace(GROUP, name=name))
    assert [group.name for group in ports.share.list_groups("", 3)] == ["-c", "Z", "a"]
    assert [group.name for group in ports.share.list_groups("a", 3)] == ["b"]
    assert ports.share.get_group(hidden_name("redrive#t0")) is not None


def test_state_is_created_once(ready: Ports) -> None:
    applied = acquire(ready)
    assert ready.share.create_state(KEY, Offset(9)) == applied.after == state_of(ready)
    assert ready.share.find_states([KEY, ELSEWHERE]) == {KEY: applied.after}
    assert ready.share.find_states([ELSEWHERE]) == {}


def test_outcome_tells_the_state_before_and_after(ready: Ports) -> None:
    first = acquire(ready)
    assert (first.is_applied, first.before) == (True, ShareState(position=Offset(5)))
    assert first.after == state_of(ready)
    assert held(state_of(ready)) == [(((5, 15),), 1)]


def test_refused_update_tells_the_state_that_refused_it(ready: Ports) -> None:
    plan = plan_acquire(state_of(ready), PLAIN, log(), request())
    assert plan.update is not None
    ready.share.update(KEY, plan.update)
    seen = state_of(ready)
    assert ready.share.update(KEY, plan.update) == ShareOutcome(before=seen, after=None)
    assert state_of(ready) == seen


def test_update_of_a_partition_without_state_is_refused(ready: Ports) -> None:
    plan = plan_acquire(state_of(ready), PLAIN, log(), request())
    assert plan.update is not None
    assert ready.share.update(ELSEWHERE, plan.update) == ShareOutcome(before=None, after=None)
    assert ready.share.find_states([ELSEWHERE]) == {}


def test_fresh_records_go_to_both_acquires_with_the_same_view(ready: Ports) -> None:
    plans = [plan_acquire(state_of(ready), PLAIN, log(), request(nonce)) for nonce in (NONCE, OTHER)]
    for plan in plans:
        assert plan.update is not None
        assert ready.share.update(KEY, plan.update).is_applied
    assert (held(state_of(ready)), held(state_of(ready), OTHER)) == ([(((5, 15),), 1)], [(((15, 25),), 1)])


def test_lock_that_came_back_with_another_base_refuses_an_old_accept(ready: Ports) -> None:
    acquire(ready)
    accept = plan_acknowledge(state_of(ready), PLAIN, [ack(AckType.ACCEPT)], NOW_MS).update
    assert accept is not None
    assert ready.share.update(KEY, accept).is_applied
    assert acquire(ready).is_applied, "the acquire again, late"
    assert not ready.share.update(KEY, accept).is_applied
    assert held(state_of(ready)) == [(((15, 25),), 1)]


def test_waiter_is_armed_and_taken_once(ready: Ports) -> None:
    acquire(ready)
    armed = ready.share.update(KEY, arming(state_of(ready), 77))
    assert armed.after is not None
    assert armed.after.waiter_ms == 77
    plans = [
        plan_acknowledge(state_of(ready), PLAIN, [ack(AckType.RELEASE, *part)], NOW_MS) for part in ([(5, 6)], [(7, 8)])
    ]
    assert plans[0].update is not None
    first = ready.share.update(KEY, plans[0].update)
    assert first.took_waiter
    again = plan_acknowledge(state_of(ready), PLAIN, [ack(AckType.RELEASE, (7, 8))], NOW_MS).update
    assert again is not None
    second = ready.share.update(KEY, again)
    assert second.is_applied
    assert not second.took_waiter


def test_reset_loses_all_locks_and_refuses_what_was_planned_before(ready: Ports) -> None:
    acquire(ready)
    seen = state_of(ready)
    late = [
        plan_acknowledge(seen, PLAIN, [ack(AckType.ACCEPT)], NOW_MS).update,
        plan_acquire(seen, PLAIN, log(), request(OTHER)).update,
    ]
    assert ready.share.reset(KEY, seen, Offset(2))
    assert state_of(ready) == ShareState(generation=1, position=Offset(2))
    assert not ready.share.reset(KEY, seen, Offset(1))
    assert not ready.share.reset(ELSEWHERE, seen, Offset(1))
    for update in late:
        assert update is not None
        assert not ready.share.update(KEY, update).is_applied
    assert state_of(ready) == ShareState(generation=1, position=Offset(2))


def test_deleted_state_takes_no_update(ready: Ports) -> None:
    plan = plan_acquire(state_of(ready), PLAIN, log(), request())
    ready.share.delete_state(KEY)
    ready.share.delete_state(KEY)
    assert plan.update is not None
    assert ready.share.update(KEY, plan.update) == ShareOutcome(before=None, after=None)
    assert ready.share.find_states([KEY]) == {}


def test_empty_maps_and_every_kind_of_wait_are_stored(ready: Ports) -> None:
    rejected = Wait(5, 2, RecordSet(((5, 6),), (7,)), is_rejected=True, reason="é")
    plain = Wait(9, 1, RecordSet(((6, 8), (9, 10))))
    update = ShareUpdate(
        generation=0, waits={Offset(5): rejected, Offset(6): plain}, advance=5, open_delta=4, position_between=(5, 5)
    )
    assert ready.share.update(KEY, update).is_applied
    assert state_of(ready) == ShareState(position=Offset(10), open=4, waits={Offset(5): rejected, Offset(6): plain})
    emptied = ShareUpdate(generation=0, waits={Offset(5): None, Offset(6): None}, open_delta=-4)
    assert ready.share.update(KEY, emptied).is_applied
    assert state_of(ready) == ShareState(position=Offset(10))


@pytest.fixture(scope="module")
def stores(aws_clients: tuple[Any, Any]) -> Iterator[list[ShareStore]]:
    """The store on both kinds of tables, for a test that compares them."""
    with mock_aws():
        create_table(aws_clients[0], "groups")
        client = DynamoDbClient(BotocoreDriver(aws_clients[0]), SystemClock(), SystemEntropy())
        yield [memory_stores().share, DynamoDbShareStore(client, "groups")]


BY_KEY = replace(WITH_DEAD_LETTERS, ordering="key", in_flight_max=20)
HASHES = [0, 1, 2, 1, None, 3] * 10
NONCES = [LockNonce(f"nonce-{number}x") for number in range(4)]
RANGES = st.builds(lambda start, length: (start, start + length), st.integers(0, 30), st.integers(1, 8))


def drawn_update(data: st.DataObject, view: ShareState, now_ms: int, config: ShareGroupConfig) -> ShareUpdate | None:
    """An update that some caller plans on a view, which may be an old one."""
    acknowledgements = [
        ack(
            data.draw(st.sampled_from(AckType)),
            *data.draw(st.lists(RANGES, max_size=2)),
            nonce=data.draw(st.sampled_from(NONCES)),
            index=data.draw(st.integers(0, 1)),
        )
        for _ in range(data.draw(st.integers(0, 2)))
    ]
    match data.draw(st.sampled_from(["acquire", "acquire", "acknowledge", "bury", "arm"])):
        case "acquire":
            wanted = request(data.draw(st.sampled_from(NONCES)), data.draw(st.integers(1, 9)), now_ms)
            bounds = log(data.draw(st.integers(0, 30)), data.draw(st.integers(0, 5)))
            if config.is_by_key:
                window = HASHES[max(view.position, bounds.log_start) : bounds.next_offset]
                return plan_read_first(view, config, bounds, wanted, window, acknowledgements).update
            return plan_acquire(view, config, bounds, wanted, acknowledgements).update
        case "acknowledge":
            return plan_acknowledge(view, config, acknowledgements, now_ms).update
        case "bury":
            return plan_bury(view, config, now_ms, records_max=3).update
        case _:
            return arming(view, now_ms)


@pytest.mark.parametrize("config", [WITH_DEAD_LETTERS, BY_KEY])
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_adapters_do_what_apply_says(stores: list[ShareStore], config: ShareGroupConfig, data: st.DataObject) -> None:
    """Random plans, on new and old views, against all adapters at once."""
    for store in stores:
        store.delete_state(KEY)
        store.create_state(KEY, Offset(0))
    views = [ShareState(position=Offset(0))]
    now_ms = NOW_MS
    for _ in range(data.draw(st.integers(1, 12))):
        now_ms += data.draw(st.sampled_from([0, 500, 40_000]))
        view = data.draw(st.sampled_from(views[-3:]))
        update = drawn_update(data, view, now_ms, config)
        if update is not None:
            expected = ShareOutcome(before=views[-1], after=apply(views[-1], update))
            assert [store.update(KEY, update) for store in stores] == [expected] * len(stores)
            views.append(expected.after or views[-1])
    assert [store.find_states([KEY])[KEY] for store in stores] == [views[-1]] * len(stores)
