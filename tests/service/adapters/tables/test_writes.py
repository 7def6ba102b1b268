"""PutItem, UpdateItem, DeleteItem, BatchWriteItem. Pages are of https://docs.aws.amazon.com/amazondynamodb/latest/."""

import threading
from typing import Any

import pytest

from penstock_core.storage.item import item_bytes
from tests.service.adapters.tables.calls import KEY, LOG, Stage, key, number, refused, text

IS_NEW: Any = {"ConditionExpression": "attribute_not_exists(pk)"}
SHOWS: Any = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


def test_a_put_replaces_the_whole_item(stage: Stage) -> None:
    """APIReference/API_PutItem.html: completely replaces the existing item."""
    stage.put({"a": number(1)})
    stage.put({"b": number(2)})
    assert stage.get() == {"b": number(2)}


def test_a_failed_condition_changes_nothing_and_shows_the_item_if_asked(stage: Stage) -> None:
    """APIReference/API_PutItem.html, Errors and ReturnValuesOnConditionCheckFailure."""
    stage.put({"a": number(1)})
    failed = "ConditionalCheckFailedException"
    assert refused(lambda: stage.put(**IS_NEW), "The conditional request failed", failed).item is None
    assert refused(lambda: stage.put(**IS_NEW, **SHOWS), code=failed).item == {**KEY, "a": number(1)}
    is_two: Any = {"ConditionExpression": "a = :two", "values": {":two": number(2)}}
    refused(lambda: stage.update("REMOVE a", **is_two), code=failed)
    refused(
        lambda: stage.tables.delete_item(
            TableName=LOG, Key=KEY, ConditionExpression="a = :two", ExpressionAttributeValues={":two": number(2)}
        ),
        code=failed,
    )
    missing = refused(lambda: stage.put(sort="t", ConditionExpression="attribute_exists(pk)", **SHOWS), code=failed)
    assert missing.item is None, "there is none"
    assert stage.get() == {"a": number(1)}


def test_a_delete_of_nothing_succeeds(stage: Stage) -> None:
    """APIReference/API_DeleteItem.html: DeleteItem is an idempotent operation."""
    assert stage.tables.delete_item(TableName=LOG, Key=KEY, ReturnValues="ALL_OLD") == {}
    stage.put({"a": number(1)})
    assert stage.tables.delete_item(TableName=LOG, Key=KEY, ReturnValues="ALL_OLD") == {
        "Attributes": {**KEY, "a": number(1)}
    }
    assert stage.tables.get_item(TableName=LOG, Key=KEY, ConsistentRead=True) == {}


@pytest.mark.parametrize(
    ("wanted", "first", "second"),
    [
        ("NONE", None, None),
        ("ALL_OLD", None, {**KEY, "a": number(1)}),
        ("ALL_NEW", {**KEY, "a": number(1)}, {**KEY, "a": number(1), "b": number(1)}),
        ("UPDATED_OLD", None, None),
        ("UPDATED_NEW", {"a": number(1)}, {"b": number(1)}),
    ],
)
def test_an_update_returns_what_it_is_asked_for(stage: Stage, wanted: str, first: Any, second: Any) -> None:
    """APIReference/API_UpdateItem.html, ReturnValues."""
    assert stage.update("SET a = :one", {":one": number(1)}, ReturnValues=wanted).get("Attributes") == first
    assert stage.update("SET b = :one", {":one": number(1)}, ReturnValues=wanted).get("Attributes") == second


def test_puts_and_deletes_return_the_old_item_alone(stage: Stage) -> None:
    """APIReference/API_PutItem.html, ReturnValues: PutItem does not recognize any values other than NONE or ALL_OLD."""
    assert stage.put({"a": number(1)}, ReturnValues="ALL_OLD") == {}
    assert stage.put(ReturnValues="ALL_OLD") == {"Attributes": {**KEY, "a": number(1)}}
    refused(lambda: stage.put(ReturnValues="ALL_NEW"), "ReturnValues can only be")
    refused(lambda: stage.tables.delete_item(TableName=LOG, Key=KEY, ReturnValues="UPDATED_OLD"), "ReturnValues")
    refused(lambda: stage.update("SET a = :one", {":one": number(1)}, ReturnValues="SOME"), "ReturnValues")
    refused(lambda: stage.put(ReturnValuesOnConditionCheckFailure="ALL_NEW"), "ReturnValuesOnConditionCheckFailure")


def test_a_part_of_an_attribute_is_not_returned_by_guess(stage: Stage) -> None:
    """The tables in memory know UPDATED_NEW of whole attributes."""
    stage.put({"m": {"M": {}}})
    with pytest.raises(NotImplementedError):
        stage.update("SET m.a = :one", {":one": number(1)}, ReturnValues="UPDATED_NEW")


def put(sort: str, **attributes: Any) -> Any:
    return {"PutRequest": {"Item": {**key(sort), **attributes}}}


def delete(sort: str) -> Any:
    return {"DeleteRequest": {"Key": key(sort)}}


def test_a_batch_puts_and_deletes(stage: Stage) -> None:
    """APIReference/API_BatchWriteItem.html."""
    stage.put(sort="old")
    answer = stage.tables.batch_write_item(RequestItems={LOG: [put("a"), delete("old")], "groups": [put("a")]})
    assert answer == {"UnprocessedItems": {}}
    assert [item["sk"] for item in stage.query()["Items"]] == [text("a")]


@pytest.mark.parametrize(
    ("requests", "why"),
    [
        ([delete(str(each)) for each in range(25)], "Too many items"),
        ([put("a"), delete("a")], "duplicates"),
        ([{}], "one PutRequest or one DeleteRequest"),
        ([put("a") | delete("b")], "one PutRequest or one DeleteRequest"),
        ([put("")], "empty string value"),
        ([put("a", b={"B": bytes(409_600)})], "Item size has exceeded"),
    ],
)
def test_wrong_batches_are_refused_as_a_whole(stage: Stage, requests: Any, why: str) -> None:
    """APIReference/API_BatchWriteItem.html: rejects the entire batch write operation; 25 requests at most."""
    refused(lambda: stage.tables.batch_write_item(RequestItems={LOG: [put("z"), *requests]}), why)
    assert stage.query()["Count"] == 0


def test_a_batch_has_25_writes(stage: Stage) -> None:
    """APIReference/API_BatchWriteItem.html: up to 25 put or delete requests."""
    stage.tables.batch_write_item(RequestItems={LOG: [put(str(each)) for each in range(25)]})
    assert stage.query()["Count"] == 25
    refused(lambda: stage.tables.batch_write_item(RequestItems={LOG: []}), "Too many items")


def test_the_size_of_an_item_is_that_of_what_is_stored(stage: Stage) -> None:
    """developerguide/CapacityUnitCalculations.html."""
    stage.put({"l": {"L": [number(1)]}, "m": {"M": {"a": text("é")}}, "ss": {"SS": ["ab", "c"]}})
    stored = stage.tables._stored((LOG, "p", "s"))
    assert stored is not None
    keys, a_list, a_map, a_set = (2 + 1) * 2, 1 + 3 + 1 + 2, 1 + 3 + 1 + 1 + 2, 2 + 3
    assert stored[1] == item_bytes(stored[0]) == keys + a_list + a_map + a_set


def test_updates_of_many_threads_are_atomic(stage: Stage) -> None:
    """developerguide/WorkingWithItems.html, Atomic counters."""

    def count() -> None:
        for _ in range(200):
            stage.update("ADD n :one", {":one": number(1)})

    threads = [threading.Thread(target=count) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert stage.get() == {"n": number(1_600)}
