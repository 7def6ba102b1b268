"""Subscriptions are created and altered."""

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from penstock_core.acls.principal import iam_principal
from penstock_core.acls.rule import parse_rule
from penstock_core.acls.rule_set import Access, RuleSet
from penstock_core.acls.tokens import AclSettings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, SubscriptionName, TopicName
from penstock_core.limits import PUSH_SUBSCRIPTIONS_MAX
from penstock_core.push.delivery import DeliveryKey, DeliveryState
from penstock_core.push.lane import lane_of
from penstock_core.push.subscription import Subscription
from penstock_core.push.targets.target import HttpsTarget
from penstock_core.share.share_state import ShareKey
from penstock_service.adapters.memory.messages import MemoryTargets
from penstock_service.instance.instance import Instance
from penstock_service.push.admin.describe_subscription import describe_subscription
from penstock_service.push.admin.pause_subscription import delete_subscription
from penstock_service.push.admin.put_subscription import ends_of, put_subscription
from penstock_service.push.parallel.parallel_group import parallel_group, parallel_group_name
from penstock_service.topics.alter_topic import delete_topic
from tests.core.push.push_samples import SECRET
from tests.service.push.admin.setting import FUNCTION, NAME, alter, create, queue_of, take_messages, wish
from tests.support.interleaving import catch_kill, killed_at
from tests.support.refusals import refused
from tests.support.service import Intercepted, SteppedClock, filled_topic, key_of, new_topic, send, with_stores

ENDPOINT = {"https": {"url": "https://example.com/hook", "secret": SECRET}}
OTHER_SECRET = "whsec_" + "QkNE" * 10


def stored(instance: Instance) -> Subscription | None:
    return instance.stores.push.get_subscription(SubscriptionName(NAME))


def offsets(instance: Instance, subscription: Subscription) -> dict[tuple[str, int], int]:
    """The stored places by topic id and partition."""
    states = instance.stores.push.states_of(subscription.subscription_id).deliveries
    return {(key.topic_id, key.partition): state.offset for key, state in states.items()}


def test_creation_binds_topics_switches_deliveries_on_and_starts_each_lane_that_has_partitions(
    instance: Instance,
) -> None:
    new_topic(instance, partitions=7)
    made = create(instance, concurrency=3)
    assert made == stored(instance)
    assert made.topics == {"orders": key_of(instance, "orders").topic_id}
    assert queue_of(instance).is_on
    messages = take_messages(instance)
    assert sorted(each.lane for each in messages) == [0, 1, 2]
    for each in messages:
        assert each.partition is not None
        assert (each.lane, each.version) == (lane_of(each.partition, 3), made.version)
    assert max(each.partition.partition for each in messages if each.partition) == 6, "names the highest partition"


def test_lane_without_partitions_gets_no_message(instance: Instance) -> None:
    new_topic(instance, partitions=2)
    create(instance, concurrency=10)
    assert len(take_messages(instance)) == 2


def test_repeat_changes_nothing_and_starts_the_deliveries_again(instance: Instance) -> None:
    new_topic(instance)
    made = create(instance, batch_records=7)
    first = take_messages(instance)
    assert put_subscription(instance, NAME, wish(["orders"], {"lambda": FUNCTION}, batch_records=7)) == (made, False)
    assert take_messages(instance) == first


def test_latest_begins_where_the_log_ended(instance: Instance) -> None:
    filled_topic(instance, partitions=2, records=3)
    made = create(instance)
    send(instance, "orders", "new")
    topic_id = key_of(instance, "orders").topic_id
    assert offsets(instance, made) == {(topic_id, 0): 3, (topic_id, 1): 3}


def test_earliest_begins_with_the_log_and_stores_no_places(instance: Instance) -> None:
    filled_topic(instance, records=3)
    assert offsets(instance, create(instance, start="earliest")) == {}


def test_places_are_there_before_the_subscription_is_seen(instance: Instance) -> None:
    filled_topic(instance, records=3)
    seen: list[bool] = []

    def watch(change: Any, old: Subscription | None, new: Subscription) -> None:
        seen.append(bool(offsets(instance, new)) and bool(instance.stores.push.orphaned_states("", 10)))
        change(old, new)

    create(with_stores(instance, push=Intercepted(instance.stores.push, change_subscription=watch)))
    assert seen == [True]
    assert not instance.stores.push.orphaned_states("", 10), "the creation takes its note away"


def test_topic_that_is_added_begins_at_its_end_and_one_that_was_read_before_goes_on(instance: Instance) -> None:
    filled_topic(instance, records=3)
    filled_topic(instance, "bills", records=5)
    made = create(instance)
    key = DeliveryKey(
        subscription_id=made.subscription_id, topic_id=key_of(instance, "orders").topic_id, partition=Partition(0)
    )
    alter(instance, ["bills"])
    send(instance, "orders", "meanwhile")
    altered = alter(instance, ["bills", "orders"])
    assert altered.version == made.version + 2
    assert offsets(instance, altered) == {(key_of(instance, "bills").topic_id, 0): 5, (key.topic_id, 0): 3}


def test_topic_that_was_made_anew_is_bound_again(instance: Instance) -> None:
    new_topic(instance)
    made = create(instance)
    delete_topic(instance, "orders")
    new_topic(instance)
    assert alter(instance).topics == made.topics
    assert alter(instance, ["orders"]).topics == {"orders": key_of(instance, "orders").topic_id} != made.topics


def test_settings_that_are_left_out_stay_and_null_is_the_default(instance: Instance) -> None:
    new_topic(instance), new_topic(instance, "dead")
    create(instance, batch_records=7, dead_letter_topic="dead", age_ms_max=1_000)
    config = alter(instance, batch_records=None, concurrency=3).config
    assert (config.batch_records, config.concurrency, config.dead_letter_topic) == (100, 3, "dead")
    config = alter(instance, dead_letter_topic=None).config
    assert (config.dead_letter_topic, config.attempts_max, config.age_ms_max) == (None, None, None)


def test_secret_that_is_left_out_stays(instance: Instance) -> None:
    new_topic(instance)
    create(instance, target=ENDPOINT)
    same = {"https": {"url": "https://example.com/hook"}}
    assert put_subscription(instance, NAME, wish(None, same))[0].target == HttpsTarget(
        url="https://example.com/hook", secret=SECRET
    )
    renewed = {"https": {"url": "https://example.com/other", "secret": OTHER_SECRET}}
    found = put_subscription(instance, NAME, wish(None, renewed))[0].target
    assert isinstance(found, HttpsTarget)
    assert found.secret == OTHER_SECRET


@pytest.mark.parametrize(
    "url",
    [
        "https://other.com/hook",
        "https://example.com:444/hook",
        "https://example.com.x/hook",
        "https://example.com/other",
        "https://example.com/hook?to=other",
    ],
)
def test_another_url_needs_a_secret(instance: Instance, url: str) -> None:
    new_topic(instance)
    made = create(instance, target=ENDPOINT)
    error = refused(
        ErrorCode.INVALID_CONFIG, lambda: put_subscription(instance, NAME, wish(None, {"https": {"url": url}}))
    )
    assert "secret" in error.message
    assert instance.stores.push.get_subscription(made.name) == made


def test_secret_is_needed_where_there_is_none_yet(instance: Instance) -> None:
    new_topic(instance)
    moved = {"https": {"url": "https://example.com/other"}}
    refused(ErrorCode.INVALID_CONFIG, lambda: create(instance, target=moved))
    create(instance)
    refused(ErrorCode.INVALID_CONFIG, lambda: put_subscription(instance, NAME, wish(None, moved)))


@pytest.mark.parametrize(
    ("settings", "is_allowed"),
    [
        ({"batch_records": 7}, True),
        ({"concurrency": 2}, True),
        ({"concurrency": 4}, False),
        ({"concurrency": None}, False),
        ({"filter": {"type": ["order"]}}, False),
        ({"filter": None}, False),
        ({"dead_letter_topic": None}, False),
    ],
)
def test_caller_who_may_not_read_the_topics_widens_no_subscription(
    instance: Instance, settings: dict[str, Any], is_allowed: bool
) -> None:
    new_topic(instance)
    found = create(instance, concurrency=3)
    ada = iam_principal("arn:aws:iam::1:user/ada")
    rules = RuleSet([parse_rule(ada.name, "alter", "subscription:*")], AclSettings(allows_by_default=False))
    access = Access(principal=ada, rules=rules.of(ada.name))
    if is_allowed:
        put_subscription(instance, NAME, wish(None, None, **settings), access)
    else:
        refused(
            ErrorCode.NOT_AUTHORIZED, lambda: put_subscription(instance, NAME, wish(None, None, **settings), access)
        )
        assert instance.stores.push.get_subscription(found.name) == found


@pytest.mark.parametrize(
    ("topics", "target", "settings", "code"),
    [
        (None, {"lambda": FUNCTION}, {}, ErrorCode.INVALID_REQUEST),
        (["orders"], None, {}, ErrorCode.INVALID_REQUEST),
        (["missing"], {"lambda": FUNCTION}, {}, ErrorCode.UNKNOWN_TOPIC),
        (["orders"], {"topic": "missing"}, {}, ErrorCode.UNKNOWN_TOPIC),
        (["orders"], {"topic": "orders"}, {}, ErrorCode.INVALID_CONFIG),
        (["orders"], {"topic": "bills"}, {"mode": "parallel"}, ErrorCode.INVALID_CONFIG),
        (["orders"], {"lambda": "pack"}, {}, ErrorCode.INVALID_CONFIG),
        (["orders"], {"lambda": FUNCTION}, {"dead_letter_topic": "missing"}, ErrorCode.UNKNOWN_TOPIC),
        (["orders"], {"lambda": FUNCTION}, {"dead_letter_topic": "orders"}, ErrorCode.INVALID_CONFIG),
        (["orders"], {"lambda": FUNCTION}, {"filter": {"type": []}}, ErrorCode.INVALID_FILTER),
        (["orders"], {"lambda": FUNCTION}, {"batch_records": 0}, ErrorCode.INVALID_CONFIG),
        (["orders"], {"lambda": FUNCTION}, {"batch_size": 1}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_wrong_subscription_is_refused_and_leaves_nothing(
    instance: Instance,
    topics: list[str] | None,
    target: dict[str, Any] | None,
    settings: dict[str, Any],
    code: ErrorCode,
) -> None:
    new_topic(instance), new_topic(instance, "bills")
    refused(code, lambda: put_subscription(instance, NAME, wish(topics, target, **settings)))
    assert stored(instance) is None
    assert not instance.stores.push.orphaned_states("", 10)
    assert not queue_of(instance).is_on


def test_target_that_the_service_may_not_reach_is_refused_before_anything_is_stored(instance: Instance) -> None:
    new_topic(instance)
    targets = instance.stores.targets
    assert isinstance(targets, MemoryTargets)
    targets.refusal = PenstockError(ErrorCode.ACCESS_DENIED, "grant it by: aws lambda add-permission")
    refused(ErrorCode.ACCESS_DENIED, lambda: create(instance))
    assert stored(instance) is None


@pytest.mark.parametrize("change", [{"mode": "parallel"}, {"start": "earliest"}])
def test_mode_and_start_stay(instance: Instance, change: dict[str, Any]) -> None:
    new_topic(instance)
    create(instance)
    refused(ErrorCode.INVALID_CONFIG, lambda: alter(instance, **change))
    assert alter(instance, mode=None, start="latest").version == 0


def test_topic_that_was_created_after_its_reader_has_no_end_to_begin_at(
    instance: Instance, clock: SteppedClock
) -> None:
    since_ms = clock.now_ms()
    filled_topic(instance, "before", records=3)
    clock.sleep_ms(1_000)
    filled_topic(instance, "after", records=3)
    ends = ends_of(instance, [TopicName("before"), TopicName("after")], since_ms)
    assert ends == [(key_of(instance, "before"), 3)]


def test_subscriptions_of_a_stage_are_bounded(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_service.push.admin.put_subscription.PUSH_SUBSCRIPTIONS_MAX", 1)
    new_topic(instance)
    create(instance)
    other = wish(["orders"], {"lambda": FUNCTION})
    error = refused(ErrorCode.TOO_MANY_SUBSCRIPTIONS, lambda: put_subscription(instance, "other", other))
    assert error.facts == {"limit": 1}
    alter(instance, batch_records=7)
    assert PUSH_SUBSCRIPTIONS_MAX == 1_000


def test_two_creations_at_once_make_one_subscription(instance: Instance) -> None:
    new_topic(instance)
    wanted = wish(["orders"], {"lambda": FUNCTION})

    def race(change: Any, old: Subscription | None, new: Subscription) -> None:
        create(instance)
        change(old, new)

    racing = with_stores(instance, push=Intercepted(instance.stores.push, change_subscription=race))
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: put_subscription(racing, NAME, wanted))
    assert [each.subscription_id for each in instance.stores.push.orphaned_states("", 10)] != []


@pytest.mark.parametrize("mode", ["ordered", "parallel"])
@pytest.mark.parametrize("is_applied", [False, True])
def test_creation_that_dies_anywhere_is_finished_by_a_repeat(instance: Instance, mode: str, is_applied: bool) -> None:
    filled_topic(instance, records=3)
    deaths = 0
    for place in count():
        with catch_kill() as was_killed:
            create(killed_at(instance, place, is_applied=is_applied), mode=mode)
        if not was_killed:
            break
        deaths += 1
        seen = stored(instance)
        take_messages(instance)
        made = create(instance, mode=mode)
        assert [each.version for each in take_messages(instance)] == [made.version]
        assert {each.place.offset for each in describe_subscription(instance, NAME, "", 10).partitions} == {3}
        if seen is None:
            left = {each.subscription_id for each in instance.stores.push.orphaned_states("", 100)}
            assert made.subscription_id not in left
        delete_subscription(instance, NAME)
    assert deaths > 5


def test_parallel_subscription_gets_a_share_group_that_no_list_shows(instance: Instance) -> None:
    filled_topic(instance, partitions=2, records=3)
    new_topic(instance, "dead")
    made = create(instance, mode="parallel", dead_letter_topic="dead", filter={"type": ["order"]})
    group = instance.stores.share.get_group(parallel_group_name(made.subscription_id))
    assert group == parallel_group(made)
    assert (group.config.deliveries_max, group.config.dead_letter_topic) == (5, "dead")
    assert group.config.filter == {"type": ["order"]}
    assert instance.stores.share.list_groups("", 10) == []
    key = key_of(instance, "orders")
    keys = [ShareKey(group.share_group_id, key.topic_id, Partition(number)) for number in range(2)]
    assert [each.position for each in instance.stores.share.find_states(keys).values()] == [3, 3]


def test_share_group_follows_the_subscription(instance: Instance) -> None:
    filled_topic(instance, records=3)
    filled_topic(instance, "bills", records=5)
    made = create(instance, mode="parallel")
    altered = alter(instance, ["bills", "orders"], backoff_ms_min=5)
    group = instance.stores.share.get_group(parallel_group_name(made.subscription_id))
    assert group is not None
    assert (group.topics, group.config.retry_backoff_ms_min, group.version) == (altered.topics, 5, 1)
    key = ShareKey(group.share_group_id, key_of(instance, "bills").topic_id, Partition(0))
    assert instance.stores.share.find_states([key])[key].position == 5


def test_share_group_of_a_subscription_notes_the_topics_that_it_has_left(instance: Instance) -> None:
    for name in ("orders", "bills"):
        new_topic(instance, name)
    made = create(instance, mode="parallel")
    alter(instance, ["bills"])
    group = instance.stores.share.get_group(parallel_group_name(made.subscription_id))
    assert group is not None
    assert group.left_topics == {key_of(instance, "orders").topic_id}
    altered = alter(instance, backoff_ms_min=7)
    assert instance.stores.share.get_group(group.name) == replace(
        parallel_group(altered), version=2, left_topics=group.left_topics
    )


def test_share_group_of_an_alteration_that_died_does_not_hinder_the_next(instance: Instance) -> None:
    new_topic(instance)
    create(instance, mode="parallel")

    def die(_change: Any, _old: Subscription | None, _new: Subscription) -> None:
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "it does not answer")

    dying = with_stores(instance, push=Intercepted(instance.stores.push, change_subscription=die))
    with pytest.raises(PenstockError) as caught:
        alter(dying, backoff_ms_min=5)
    assert caught.value.maybe_applied  # the group has the setting
    made = alter(instance, backoff_ms_min=7)
    group = instance.stores.share.get_group(parallel_group_name(made.subscription_id))
    assert group is not None
    assert group.config.retry_backoff_ms_min == 7


def test_ordered_subscription_has_no_share_group_and_state_of_its_own(instance: Instance) -> None:
    filled_topic(instance, records=3)
    made = create(instance)
    key = key_of(instance, "orders")
    delivery = DeliveryKey(subscription_id=made.subscription_id, topic_id=key.topic_id, partition=key.partition)
    assert instance.stores.push.find_deliveries([delivery]) == {delivery: DeliveryState(offset=Offset(3))}
    assert instance.stores.share.get_group(parallel_group_name(made.subscription_id)) is None
