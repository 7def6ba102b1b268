"""The stream of changes, and expiry. Pages are of https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/."""

from typing import Any

import pytest

from penstock_service.adapters.tables.tables import Change
from tests.service.adapters.tables.calls import KEY, LOG, Stage, key, number, refused, sorts, text

FIVE_YEARS_S = 5 * 365 * 86_400


def change(old: Any, new: Any, is_expiry: bool = False, **more: Any) -> Change:
    images = [None if each is None else {**KEY, **each} for each in (old, new)]
    return Change(**{"table": LOG, "key": KEY, "old": images[0], "new": images[1], "is_expiry": is_expiry, **more})


def test_each_change_has_both_images_in_order(stage: Stage) -> None:
    """Streams.html: both the new and the old images, in the same sequence as the actual modifications."""
    stage.put({"a": number(1)})
    stage.update("SET a = :two", {":two": number(2)})
    stage.transact({"Update": {"TableName": LOG, "Key": KEY, "UpdateExpression": "REMOVE a"}})
    stage.tables.batch_write_item(RequestItems={LOG: [{"DeleteRequest": {"Key": KEY}}]})
    one, two = {"a": number(1)}, {"a": number(2)}
    assert stage.changes == [change(None, one), change(one, two), change(two, {}), change({}, None)]


def test_what_changes_nothing_is_not_told(stage: Stage) -> None:
    """Streams.html: a write that changes no data makes no stream record."""
    stage.put({"a": number(1)})
    del stage.changes[:]
    stage.put({"a": number("1.0")})
    stage.update("SET a = :one", {":one": number(1)})
    stage.tables.delete_item(TableName=LOG, Key=key("nothing"))
    refused(lambda: stage.put(ConditionExpression="attribute_not_exists(pk)"), code="ConditionalCheckFailedException")
    stage.transact({"ConditionCheck": {"TableName": LOG, "Key": KEY, "ConditionExpression": "attribute_exists(pk)"}})
    assert stage.changes == []


def expiring(stage: Stage, seconds: int, sort: str) -> None:
    stage.put({"expires_at_s": number(stage.now_ms // 1_000 + seconds)}, sort)


def test_an_expired_item_stays_until_dynamodb_removes_it(stage: Stage) -> None:
    """howitworks-ttl.html: deleted within a few days; until then they still appear in reads, queries, and scans."""
    expiring(stage, -1, "s")
    assert sorts(stage.query()) == ["s"]
    stage.update("SET a = :one", {":one": number(1)})
    del stage.changes[:]
    assert stage.tables.expire(10) == 1
    assert sorts(stage.query()) == []
    [told] = stage.changes
    assert (told.table, told.key, told.new) == (LOG, KEY, None)
    assert told.is_expiry, "time-to-live-ttl-streams.html: userIdentity is the service"


def test_other_items_stay(stage: Stage) -> None:
    """howitworks-ttl.html: a Number of epoch seconds, older than the current time, and not by 5 years or more."""
    expiring(stage, 0, "now")
    expiring(stage, 100, "later")
    expiring(stage, -FIVE_YEARS_S - 1, "five years ago")
    stage.put({"expires_at_s": text("1")}, "text")
    stage.put(sort="without")
    stage.tables.put_item(TableName="topics", Item={**KEY, "expires_at_s": number(stage.now_ms // 1_000 - 1)})
    assert stage.tables.expire(10) == 0, "and the topics table has no TTL"
    expiring(stage, -FIVE_YEARS_S, "almost")
    stage.put({"expires_at_s": number(f"{stage.now_ms // 1_000 - 1}.5")}, "half")
    assert stage.tables.expire(10) == 2


@pytest.mark.parametrize("count_max", [0, 2, 3])
def test_items_expire_in_dynamodbs_own_time(stage: Stage, count_max: int) -> None:
    """howitworks-ttl.html: no time is promised."""
    for sort in "abc":
        expiring(stage, -1, sort)
    assert stage.tables.expire(count_max) == count_max
    assert stage.query()["Count"] == 3 - count_max
