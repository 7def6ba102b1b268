"""The trail of a change, from its note to its record in `_audit`."""

import json
from typing import Any

import pytest

from penstock_core.audit.audit_entry import AuditResult, Caller
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import AUDIT_TOPIC
from penstock_core.limits import AUDIT_AT_ONCE, AUDIT_UNKNOWN_MS
from penstock_core.zones.zone_state import Acks
from penstock_service.audit.note_change import Change, audited, begin_change, end_change
from penstock_service.audit.settle_audit import AuditRun, settle_audit
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.topics.alter_topic import alter_topic, delete_topic, truncate
from penstock_service.topics.create_topic import create_topic
from penstock_service.topics.describe_topic import list_topics
from tests.service.push.admin.setting import create
from tests.support.refusals import refused
from tests.support.service import (
    LOST_ANSWER,
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    batch,
    entry,
    new_topic,
    read_all,
    with_stores,
)

FOR_EVER_MS = 1e9
YEAR_MS = 365 * 24 * 3_600_000
CALLER = Caller(principal="arn:aws:iam::111122223333:role/ops", address="203.0.113.7", request_id="r1")
CHANGE = Change(action="alter_topic", kind="topic", name="orders", before={"partitions": 1})


def settle(instance: Instance, retention_ms: int = YEAR_MS) -> AuditRun:
    return settle_audit(instance, retention_ms, budget_ms=FOR_EVER_MS)


def trail(instance: Instance) -> list[dict[str, Any]]:
    return [json.loads(value) for _, value in read_all(instance, AUDIT_TOPIC)]


def results_of(instance: Instance) -> list[tuple[Any, Any, str]]:
    return [(each["before"], each["after"], each["result"]) for each in trail(instance)]


def test_change_is_in_the_topic_with_both_states_once_it_is_settled(instance: Instance) -> None:
    assert audited(instance, CALLER, CHANGE, lambda: 2, lambda count: {"partitions": count}) == 2
    assert settle(instance) == AuditRun(settled=1)
    [record] = trail(instance)
    assert (record["principal"], record["address"], record["request_id"]) == (
        CALLER.principal,
        CALLER.address,
        CALLER.request_id,
    )
    assert (record["action"], record["resource"]) == ("alter_topic", {"kind": "topic", "name": "orders"})
    assert results_of(instance) == [({"partitions": 1}, {"partitions": 2}, "done")]
    assert settle(instance) == AuditRun()
    assert len(trail(instance)) == 1


def test_change_is_not_made_when_its_note_cannot_be_written(instance: Instance) -> None:
    def fail(*_arguments: object) -> object:
        raise UNAVAILABLE

    broken = with_stores(instance, audit=Intercepted(instance.stores.audit, put=fail))
    made: list[int] = []
    refused(ErrorCode.STORAGE_UNAVAILABLE, lambda: audited(broken, CALLER, CHANGE, lambda: made.append(1), lambda _: 0))
    assert made == []


@pytest.mark.parametrize(("error", "results"), [(UNAVAILABLE, []), (LOST_ANSWER, ["unknown"])])
def test_change_that_failed_leaves_a_record_only_if_it_may_have_been_made(
    instance: Instance, error: PenstockError, results: list[str]
) -> None:
    def make() -> None:
        raise error

    with pytest.raises(PenstockError, match=error.message):
        audited(instance, CALLER, CHANGE, make, lambda _: None)
    settle(instance)
    found = [] if not results else [result for _, _, result in results_of(instance)]
    assert found == results
    assert instance.stores.audit.entries(10) == []


def test_request_that_died_counts_as_unknown_after_a_while(instance: Instance, clock: SteppedClock) -> None:
    begin_change(instance, CALLER, CHANGE)
    clock.sleep_ms(AUDIT_UNKNOWN_MS)
    assert settle(instance) == AuditRun(begun=1)
    clock.sleep_ms(1)
    assert settle(instance) == AuditRun(settled=1)
    assert results_of(instance) == [({"partitions": 1}, None, "unknown")]


def test_change_that_was_made_is_answered_though_its_result_cannot_be_noted(instance: Instance) -> None:
    noted = begin_change(instance, CALLER, CHANGE)

    def fail(*_arguments: object) -> object:
        raise UNAVAILABLE

    end_change(with_stores(instance, audit=Intercepted(instance.stores.audit, put=fail)), noted, {"partitions": 2})
    [kept] = instance.stores.audit.entries(10)
    assert kept.result is AuditResult.BEGUN
    assert instance.telemetry.take()[0]["audit_incomplete"] == 1


def test_run_that_dies_behind_its_append_appends_again_under_the_same_id(instance: Instance) -> None:
    audited(instance, CALLER, CHANGE, lambda: 2, lambda count: {"partitions": count})

    def fail(*_arguments: object) -> object:
        raise UNAVAILABLE

    broken = with_stores(instance, audit=Intercepted(instance.stores.audit, forget=fail))
    refused(ErrorCode.STORAGE_UNAVAILABLE, lambda: settle(broken))
    settle(instance)
    assert len(trail(instance)) == 2
    assert len({each["audit_id"] for each in trail(instance)}) == 1


def test_many_changes_are_settled_in_order(instance: Instance, clock: SteppedClock) -> None:
    count = 2 * AUDIT_AT_ONCE + 3
    for number in range(count):
        audited(instance, CALLER, CHANGE, lambda: None, lambda _, number=number: number)  # type: ignore[misc]
        clock.sleep_ms(1)
    assert settle(instance).settled == count
    assert [after for _, after, _ in results_of(instance)] == [*range(count)]


def test_run_without_notes_makes_no_topic(instance: Instance) -> None:
    assert settle(instance) == AuditRun()
    assert instance.topic_cache.find(AUDIT_TOPIC) is None


def test_topic_gets_the_retention_of_the_stage_and_a_later_one(instance: Instance) -> None:
    for retention_ms in (YEAR_MS, 2 * YEAR_MS):
        audited(instance, CALLER, CHANGE, lambda: None, lambda _: None)
        settle(instance, retention_ms)
        assert instance.topic_cache.read_through(AUDIT_TOPIC).config.retention_ms == retention_ms


def test_callers_only_read_topics_of_the_service(instance: Instance) -> None:
    new_topic(instance)
    audited(instance, CALLER, CHANGE, lambda: None, lambda _: None)
    settle(instance)
    for attempt in (
        lambda: create_topic(instance, "_penstock_other", 1, {}),
        lambda: alter_topic(instance, AUDIT_TOPIC, None, {"retention_ms": 60_000}),
        lambda: delete_topic(instance, AUDIT_TOPIC),
        lambda: truncate(instance, AUDIT_TOPIC, {0: 1}),
        lambda: produce(instance, [entry(AUDIT_TOPIC, 0, batch("forged"))], Acks.QUORUM).all_ok(),
        lambda: put_share_group(instance, "workers", ["orders"], {"dead_letter_topic": AUDIT_TOPIC}),
        lambda: create(instance, "orders", dead_letter_topic=AUDIT_TOPIC),
        lambda: create(instance, "orders", target={"topic": AUDIT_TOPIC}),
    ):
        refused(ErrorCode.INVALID_NAME, attempt)
    assert len(trail(instance)) == 1
    assert [topic.name for topic in list_topics(instance.stores.topics, 10, "")[0]] == ["orders"]
