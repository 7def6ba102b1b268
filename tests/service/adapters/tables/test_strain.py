"""The ways of a busy DynamoDB. Pages are of https://docs.aws.amazon.com/amazondynamodb/latest/.

The stream of changes, and expiry. Pages are of https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from penstock_service.adapters.dynamodb.driver_errors import NoAnswerError
from penstock_service.adapters.tables.tables import Change, InterposedTables
from tests.service.adapters.tables.calls import KEY, LOG, Stage, key, number, refused, sorts, text

PUT: Any = {"Put": {"TableName": LOG, "Item": KEY}}


def test_a_transaction_holds_its_items(stage: Stage) -> None:
    """developerguide/transaction-apis.html, Transaction conflict handling: writes are refused, transactions cancelled.

    A batch leaves such items unprocessed. Reads go on, of the item as it was.
    """
    met: list[str] = []

    def others() -> None:
        refused(stage.put, "Transaction is ongoing", "TransactionConflictException")
        refused(lambda: stage.update("REMOVE a"), code="TransactionConflictException")
        error = refused(
            lambda: stage.transact({"Delete": {"TableName": LOG, "Key": key("t")}}, PUT),
            code="TransactionCanceledException",
        )
        assert [reason["Code"] for reason in error.reasons] == ["None", "TransactionConflict"]
        requests = [{"DeleteRequest": {"Key": KEY}}, {"DeleteRequest": {"Key": key("t")}}]
        assert stage.tables.batch_write_item(RequestItems={LOG: requests}) == {"UnprocessedItems": {LOG: requests[:1]}}
        assert stage.get() == {"expires_at_s": number(1_000)}
        assert stage.tables.expire(10) == 0
        stage.put(sort="t")
        met.append("all")

    stage.strain(hold=others)
    stage.put({"expires_at_s": number(1_000)})
    stage.now_ms = 2_000_000
    stage.transact(PUT)
    assert met == ["all"]
    assert stage.get() == {}
    stage.put()


def test_items_are_free_again_after_a_transaction_that_failed(stage: Stage) -> None:
    """developerguide/transaction-apis.html."""

    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    stage.strain(hold=die)
    with pytest.raises(Killed):
        stage.transact(PUT)
    stage.put()


def test_a_transaction_holds_the_items_that_it_checks(stage: Stage) -> None:
    """developerguide/transaction-apis.html: serializable, so no item changes between the check and the write."""
    check = {"TableName": LOG, "Key": key("checked"), "ConditionExpression": "attribute_not_exists(pk)"}
    stage.strain(hold=lambda: refused(lambda: stage.put(sort="checked"), code="TransactionConflictException"))
    stage.transact(PUT, {"ConditionCheck": check})
    assert sorts(stage.query()) == ["s"]


def test_throttled_calls_change_nothing(stage: Stage) -> None:
    """developerguide/ProgrammingWithErrors.html: ThrottlingException; ThrottlingError in a transaction's reasons."""
    stage.put({"a": number(1)})
    stage.put(sort="free")
    stage.strain(is_throttled=lambda place: place[2] in ("s", ""))
    throttled = "ThrottlingException"
    refused(stage.put, code=throttled)
    refused(stage.get, code=throttled)
    refused(stage.query, code=throttled)
    refused(lambda: stage.tables.scan(TableName=LOG), code=throttled)
    refused(lambda: stage.tables.batch_get_item(RequestItems={LOG: {"Keys": [KEY]}}), code=throttled)
    answer = stage.tables.batch_get_item(RequestItems={LOG: {"Keys": [KEY, key("free")], "ConsistentRead": True}})
    assert answer["UnprocessedKeys"] == {LOG: {"Keys": [KEY], "ConsistentRead": True}}
    requests = [{"DeleteRequest": {"Key": KEY}}, {"DeleteRequest": {"Key": key("free")}}]
    assert stage.tables.batch_write_item(RequestItems={LOG: requests})["UnprocessedItems"] == {LOG: requests[:1]}
    refused(lambda: stage.tables.batch_write_item(RequestItems={LOG: requests[:1]}), code=throttled)
    error = refused(
        lambda: stage.transact({"Put": {"TableName": LOG, "Item": key("free")}}, PUT),
        code="TransactionCanceledException",
    )
    assert [reason["Code"] for reason in error.reasons] == ["None", "ThrottlingError"]
    stage.strain()
    assert stage.get() == {"a": number(1)}
    assert sorts(stage.query()) == ["s"]


def stale_stage(stage: Stage, choose: Callable[[int], int]) -> Stage:
    stage.strain(stale=choose, stale_ms=1_000)
    stage.put({"a": number(1)})
    stage.now_ms += 900
    stage.put({"a": number(2)})
    stage.tables.delete_item(TableName=LOG, Key=key("t"))
    stage.put(sort="t")
    stage.tables.delete_item(TableName=LOG, Key=KEY)
    return stage


def test_a_read_that_asks_for_no_consistency_may_be_stale(stage: Stage) -> None:
    """developerguide/HowItWorks.ReadConsistency.html: might not reflect the results of a recently completed write."""
    stale_stage(stage, lambda images: min(1, images - 1))
    assert stage.tables.get_item(TableName=LOG, Key=KEY)["Item"]["a"] == number(2)
    assert stage.tables.get_item(TableName=LOG, Key=KEY, ConsistentRead=True) == {}
    assert sorts(stage.query(ConsistentRead=False)) == ["s"]
    assert sorts(stage.query()) == ["t"]
    assert sorts(stage.tables.scan(TableName=LOG)) == ["s"]
    assert sorts(stage.tables.scan(TableName=LOG, ConsistentRead=True)) == ["t"]
    answer = stage.tables.batch_get_item(RequestItems={LOG: {"Keys": [KEY, key("t")]}})
    assert [item["sk"]["S"] for item in answer["Responses"][LOG]] == ["s"]


def test_images_are_stale_for_a_time_only(stage: Stage) -> None:
    """developerguide/HowItWorks.ReadConsistency.html: the response should eventually return the latest data."""
    counts: list[int] = []

    def choose(images: int) -> int:
        counts.append(images)
        return 0

    stale_stage(stage, choose)
    stage.tables.get_item(TableName=LOG, Key=KEY)
    stage.now_ms += 101
    stage.tables.get_item(TableName=LOG, Key=KEY)
    stage.now_ms += 1_000
    stage.tables.get_item(TableName=LOG, Key=KEY)
    assert counts == [4, 3, 1]


def test_a_function_around_each_call_may_delay_repeat_or_lose_it(stage: Stage) -> None:
    """The simulator and tests interpose it."""
    seen: list[tuple[str, Mapping[str, Any]]] = []

    def interpose(operation: str, arguments: Mapping[str, Any], apply: Callable[[], Any]) -> Any:
        seen.append((operation, arguments))
        if operation != "update_item":
            return apply()
        apply()
        apply()
        raise NoAnswerError("lost")

    tables = InterposedTables(stage.tables, interpose)
    tables.put_item(TableName=LOG, Item=KEY)
    with pytest.raises(NoAnswerError):
        tables.update_item(
            TableName=LOG, Key=KEY, UpdateExpression="ADD n :one", ExpressionAttributeValues={":one": number(1)}
        )
    assert stage.get() == {"n": number(2)}
    assert [operation for operation, _ in seen] == ["put_item", "update_item"]
    assert seen[0][1] == {"TableName": LOG, "Item": KEY}


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
