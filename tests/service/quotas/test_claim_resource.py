"""Quotas of what a principal creates: refused before it is made, whatever the order of creations at once."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import APPEND_MS_MAX, CLAIM_GRACE_MS, CLAIMS_CHECKED_MAX
from penstock_core.quotas.quota import Claim, ClaimKind
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.quotas.admin.set_quota import put_quota
from penstock_service.quotas.claim_resource import claim_resource, forget_claim
from penstock_service.topics.alter_topic import delete_topic
from penstock_service.topics.create_topic import create_topic
from tests.support.interleaving import asleep_after
from tests.support.service import Intercepted, SteppedClock, another_instance, with_stores

ADA = "arn:aws:iam::1:user/ada"


@pytest.fixture
def instance() -> Instance:
    return memory_instance(clock=SteppedClock())


def group(instance: Instance, name: str) -> Claim:
    return Claim(kind=ClaimKind.SUBSCRIPTION, name=name, resource_id=name, claimed_at_ms=instance.clock.now_ms())


def opened(instance: Instance) -> UpdateWindow:
    return UpdateWindow.open(instance.clock)


def names(instance: Instance) -> set[str]:
    return {claim.name for claim in instance.stores.quotas.claims(ADA)}


def test_claim_above_the_limit_is_refused_and_taken_back(instance: Instance) -> None:
    put_quota(instance, "principal", "*", {"subscriptions_max": 2})
    claim_resource(instance, opened(instance), ADA, group(instance, "a"))
    claim_resource(instance, opened(instance), ADA, group(instance, "b"))
    with pytest.raises(PenstockError, match="subscriptions_max=2") as refused:
        claim_resource(instance, opened(instance), ADA, group(instance, "c"))
    assert (refused.value.code, refused.value.maybe_applied) == (ErrorCode.QUOTA_EXCEEDED, False)
    assert names(instance) == {"a", "b"}
    claim_resource(instance, opened(instance), "arn:aws:iam::1:user/bob", group(instance, "c"))
    claim_resource(instance, opened(instance), ADA, group(instance, "b"))  # a repeat
    forget_claim(instance, ADA, ClaimKind.SUBSCRIPTION, "a", "a")
    claim_resource(instance, opened(instance), ADA, group(instance, "c"))


def test_what_was_made_before_there_was_a_quota_counts(instance: Instance) -> None:
    claim_resource(instance, opened(instance), ADA, group(instance, "a"))
    put_quota(instance, "principal", ADA, {"subscriptions_max": 1})
    with pytest.raises(PenstockError, match="would have 2 subscriptions"):
        claim_resource(instance, opened(instance), ADA, group(instance, "b"))


def test_service_itself_claims_nothing(instance: Instance) -> None:
    put_quota(instance, "principal", "*", {"subscriptions_max": 0})
    claim_resource(instance, opened(instance), "", group(instance, "a"))
    assert [*instance.stores.quotas.claims("")] == []


@pytest.mark.parametrize("racers", [2, 5])
@pytest.mark.parametrize("turn", range(5))
def test_creations_at_once_never_exceed_the_limit(instance: Instance, racers: int, turn: int) -> None:
    """Each racer is stopped between its claim and its count, while those after it run as a whole."""
    put_quota(instance, "principal", "*", {"subscriptions_max": 3})
    store = instance.stores.quotas
    for name in ("a", "b"):
        claim_resource(instance, opened(instance), ADA, group(instance, name))
    waiting = [f"r{number}" for number in range(racers)]
    admitted: list[str] = []
    counted: list[str] = []
    refused: set[ErrorCode] = set()

    def race(name: str) -> None:
        seen = 0

        def claims(_real: object, principal: str) -> Sequence[Claim]:
            nonlocal seen
            seen += 1
            if seen == 2 and waiting and len(counted) % (turn + 1) == 0:
                race(waiting.pop())
            counted.append(name)
            return store.claims(principal)

        raced = with_stores(instance, quotas=Intercepted(store, claims=claims))
        try:
            claim_resource(raced, opened(raced), ADA, group(instance, name))
        except PenstockError as error:
            refused.add(error.code)
        else:
            admitted.append(name)

    while waiting:
        race(waiting.pop())
    assert len(admitted) <= 1
    assert refused == {ErrorCode.QUOTA_EXCEEDED}
    assert names(instance) == {"a", "b", *admitted}


def test_resources_that_others_deleted_do_not_count_once_a_call_meets_the_limit(instance: Instance) -> None:
    put_quota(instance, "principal", ADA, {"topics_max": 2, "partitions_max": 5})
    create_topic(instance, "kept", 1, {}, ADA)
    create_topic(instance, "gone", 4, {}, ADA)
    delete_topic(instance, "gone")
    with pytest.raises(PenstockError, match="partitions_max=5"):
        create_topic(instance, "new", 4, {}, ADA)  # the claim is so young that its topic may still come
    instance.clock.sleep_ms(CLAIM_GRACE_MS + 1)
    create_topic(instance, "new", 4, {}, ADA)
    assert names(instance) == {"kept", "new"}


def test_call_at_a_limit_reads_resources_of_its_own_kind_only(instance: Instance) -> None:
    """The function that makes share groups may read no group, by its role."""

    def refuse(*_: object) -> bool:
        raise AssertionError("a group was read")

    put_quota(instance, "principal", ADA, {"groups_max": 1})
    claim_resource(
        instance, opened(instance), ADA, Claim(kind=ClaimKind.GROUP, name="g", claimed_at_ms=instance.clock.now_ms())
    )
    instance.clock.sleep_ms(CLAIM_GRACE_MS + 1)
    walled = with_stores(instance, memberships=Intercepted(instance.stores.memberships, is_registered=refuse))
    shared = Claim(kind=ClaimKind.SHARE_GROUP, name="w", resource_id="1", claimed_at_ms=instance.clock.now_ms())
    with pytest.raises(PenstockError, match="groups_max=1"):
        claim_resource(walled, opened(walled), ADA, shared)


def test_group_is_counted_although_a_call_that_failed_has_left_its_claim(instance: Instance) -> None:
    put_quota(instance, "principal", ADA, {"groups_max": 1})
    now_ms = instance.clock.now_ms()
    for name in ("there", "left"):
        left = Claim(kind=ClaimKind.GROUP, name=name, resource_id="1", claimed_at_ms=now_ms)
        instance.stores.quotas.put_claim(ADA, left)
    with pytest.raises(PenstockError, match="groups_max=1"):
        claim_resource(
            instance,
            opened(instance),
            ADA,
            Claim(kind=ClaimKind.GROUP, name="left", resource_id="2", claimed_at_ms=now_ms + 1),
        )


def test_deletion_leaves_the_claim_of_a_resource_that_was_made_anew(instance: Instance) -> None:
    topic_id = delete_topic_of(instance, "a")
    create_topic(instance, "a", 1, {}, ADA)
    forget_claim(instance, ADA, ClaimKind.TOPIC, "a", topic_id)
    [claim] = instance.stores.quotas.claims(ADA)
    assert claim.resource_id != topic_id


def test_late_removal_of_a_refused_claim_leaves_the_one_of_the_next_try(instance: Instance) -> None:
    first = Claim(kind=ClaimKind.GROUP, name="g", claimed_at_ms=instance.clock.now_ms())
    second = replace(first, claimed_at_ms=first.claimed_at_ms + 1)
    instance.stores.quotas.put_claim(ADA, first)
    instance.stores.quotas.put_claim(ADA, second)
    instance.stores.quotas.drop_claim(ADA, first)
    assert [*instance.stores.quotas.claims(ADA)] == [second]


def test_creation_is_refused_when_the_quotas_cannot_be_read(instance: Instance) -> None:
    def fail(*_: object) -> None:
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "no answer")

    put_quota(instance, "principal", ADA, {"topics_max": 0})
    deaf = another_instance(instance, quotas=Intercepted(instance.stores.quotas, list=fail))
    with pytest.raises(PenstockError, match="nothing is created") as refused:
        create_topic(deaf, "a", 1, {}, ADA)
    assert (refused.value.code, refused.value.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, False)


def delete_topic_of(instance: Instance, name: str) -> str:
    create_topic(instance, name, 1, {}, ADA)
    return delete_topic(instance, name)


def test_creation_that_slept_over_its_claim_is_refused_and_none_is_uncounted(instance: Instance) -> None:
    """Wherever the creation sleeps: meanwhile its claim is dropped, and another one takes its place."""
    outcomes = set()
    for place in range(20):
        clock = SteppedClock()
        fresh = memory_instance(clock=clock)
        put_quota(fresh, "principal", ADA, {"topics_max": 1})
        try:
            create_topic(asleep_after(fresh, place, partial(second_creation, fresh, clock)), "first", 1, {}, ADA)
        except PenstockError as error:
            outcomes.add(error.code)
        topics = {each.name for each in fresh.stores.topics.list()}
        assert len(topics) == 1, f"a sleep after call {place} leaves {topics}"
        assert topics <= names(fresh)
    assert outcomes >= {ErrorCode.STORAGE_UNAVAILABLE, ErrorCode.QUOTA_EXCEEDED}


def second_creation(instance: Instance, clock: SteppedClock) -> None:
    clock.time_ms += CLAIM_GRACE_MS + 1_000
    with suppress(PenstockError):
        create_topic(another_instance(instance), "second", 1, {}, ADA)


def test_call_at_a_limit_looks_at_claims_until_there_is_room(instance: Instance) -> None:
    """Each run of a CI has made a group of its own, long ago."""
    for number in range(5 * CLAIMS_CHECKED_MAX):
        claim = Claim(kind=ClaimKind.GROUP, name=f"ci-{number}", claimed_at_ms=instance.clock.now_ms())
        claim_resource(instance, opened(instance), ADA, claim)
    instance.clock.sleep_ms(CLAIM_GRACE_MS + 1)
    put_quota(instance, "principal", ADA, {"groups_max": 10})
    new = Claim(kind=ClaimKind.GROUP, name="new", claimed_at_ms=instance.clock.now_ms())
    claim_resource(instance, opened(instance), ADA, new)
    assert len(names(instance)) <= 10


def test_look_at_claims_ends_when_half_of_the_window_is_over(instance: Instance) -> None:
    for number in range(3 * CLAIMS_CHECKED_MAX):
        claim = Claim(kind=ClaimKind.GROUP, name=f"ci-{number}", claimed_at_ms=instance.clock.now_ms())
        claim_resource(instance, opened(instance), ADA, claim)
    instance.clock.sleep_ms(CLAIM_GRACE_MS + 1)
    put_quota(instance, "principal", ADA, {"groups_max": 1})
    window = opened(instance)
    instance.clock.sleep_ms(APPEND_MS_MAX / 2 + 1)
    new = Claim(kind=ClaimKind.GROUP, name="new", claimed_at_ms=instance.clock.now_ms())
    with pytest.raises(PenstockError, match="groups_max=1"):
        claim_resource(instance, window, ADA, new)
