"""TransactWriteItems. Pages are of https://docs.aws.amazon.com/amazondynamodb/latest/."""

from typing import Any

import pytest

from tests.service.adapters.tables.calls import KEY, LOG, Stage, key, number, refused, sorts, text

CANCELLED = "TransactionCanceledException"
ONE = {":one": number(1)}


def put(sort: str, **more: Any) -> Any:
    return {"Put": {"TableName": LOG, "Item": key(sort), **more}}


def update(sort: str, expression: str = "SET a = :one", **more: Any) -> Any:
    return {
        "Update": {
            "TableName": LOG,
            "Key": key(sort),
            "UpdateExpression": expression,
            "ExpressionAttributeValues": ONE,
            **more,
        }
    }


def delete(sort: str, **more: Any) -> Any:
    return {"Delete": {"TableName": LOG, "Key": key(sort), **more}}


def check(sort: str, condition: str) -> Any:
    return {"ConditionCheck": {"TableName": LOG, "Key": key(sort), "ConditionExpression": condition}}


IS_THERE: Any = {"ConditionExpression": "attribute_exists(pk)"}
SHOWS: Any = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


def test_all_actions_are_applied(stage: Stage) -> None:
    """developerguide/transaction-apis.html: all or nothing."""
    stage.put(sort="old")
    stage.put(sort="there")
    assert stage.transact(put("a"), update("b"), delete("old"), check("there", "attribute_exists(pk)")) == {}
    assert sorts(stage.query()) == ["a", "b", "there"]


def test_none_is_applied_if_a_condition_fails_and_reasons_come_in_order(stage: Stage) -> None:
    """APIReference/API_TransactWriteItems.html, Errors: reasons are ordered in the list of TransactItems."""
    stage.put({"a": number(5)}, "old")
    error = refused(
        lambda: stage.transact(
            put("a"),
            delete("old", ConditionExpression="a = :one", ExpressionAttributeValues=ONE, **SHOWS),
            update("b", **IS_THERE),
            check("nothing", "attribute_exists(pk)"),
        ),
        r"specific reasons \[None, ConditionalCheckFailed, ConditionalCheckFailed, ConditionalCheckFailed\]",
        CANCELLED,
    )
    failed = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
    assert error.reasons == [{"Code": "None"}, {**failed, "Item": {**key("old"), "a": number(5)}}, failed, failed]
    assert sorts(stage.query()) == ["old"]


def test_an_action_that_does_not_fit_its_item_cancels(stage: Stage) -> None:
    """APIReference/API_TransactWriteItems.html: an item that becomes too large rejects the request."""
    stage.put({"big": {"B": bytes(409_000)}})
    large: Any = {"ExpressionAttributeValues": {":one": {"B": bytes(1_000)}}}
    error = refused(lambda: stage.transact(put("a"), update("s", **large)), code=CANCELLED)
    assert error.reasons[1] == {
        "Code": "ValidationError",
        "Message": "Item size to update has exceeded the maximum allowed size",
    }
    error = refused(lambda: stage.transact(update("s", "SET a.b = :one")), code=CANCELLED)
    assert error.reasons[0]["Code"] == "ValidationError"
    assert sorts(stage.query()) == ["s"]


@pytest.mark.parametrize(
    ("actions", "why"),
    [
        ([], "length"),
        ([put(str(each)) for each in range(101)], "less than or equal to 100"),
        ([put("a"), check("a", "attribute_exists(pk)")], "multiple operations on one item"),
        ([{**put("a"), **delete("b")}], "can only contain one"),
        ([{}], "can only contain one"),
        ([{"Get": {}}], "can only contain one"),
        ([{"ConditionCheck": {"TableName": LOG, "Key": KEY}}], "ConditionExpression"),
        ([put("a"), update("b", "SET b = :two")], "not defined"),
        ([put("a"), put("")], "empty string value"),
    ],
)
def test_wrong_transactions_are_refused(stage: Stage, actions: Any, why: str) -> None:
    """APIReference/API_TransactWriteItems.html: 100 actions on distinct items; Constraints.html."""
    refused(lambda: stage.transact(*actions), why)
    assert stage.query()["Count"] == 0


def test_a_transaction_has_100_actions(stage: Stage) -> None:
    """developerguide/transaction-apis.html: up to 100 write actions."""
    stage.transact(*(put(str(each)) for each in range(100)))
    assert stage.query()["Count"] == 100


def test_a_transaction_has_4_mb(stage: Stage) -> None:
    """APIReference/API_TransactWriteItems.html: The aggregate size of the items exceeds 4 MB."""
    puts = [{"Put": {"TableName": LOG, "Item": {**key(str(each)), "a": {"B": bytes(400_000)}}}} for each in range(11)]
    stage.transact(*puts[:10])
    refused(lambda: stage.transact(*puts), "4 MB")


def test_an_unknown_parameter_of_an_action_is_a_defect(stage: Stage) -> None:
    """APIReference/API_TransactWriteItems.html: actions have no ReturnValues."""
    with pytest.raises(TypeError, match="ReturnValues"):
        stage.transact(put("a", ReturnValues="ALL_OLD"))


def test_a_repeat_with_its_token_changes_nothing_for_ten_minutes(stage: Stage) -> None:
    """developerguide/transaction-apis.html, Idempotency: valid for 10 minutes after the request finishes."""
    token: Any = {"ClientRequestToken": "token"}
    count = update("n", "ADD n :one")
    stage.transact(count, **token)
    stage.now_ms += 599_999
    assert stage.transact(count, **token) == {}
    assert stage.get("n") == {"n": number(1)}
    refused(lambda: stage.transact(put("a"), **token), code="IdempotentParameterMismatchException")
    stage.now_ms += 1
    stage.transact(count, **token)
    assert stage.get("n") == {"n": number(2)}


def test_a_cancelled_transaction_uses_up_no_token(stage: Stage) -> None:
    """developerguide/transaction-apis.html, Idempotency: a repeat returns success if the original was successful."""
    token: Any = {"ClientRequestToken": "token"}
    refused(lambda: stage.transact(update("a", **IS_THERE), **token), code=CANCELLED)
    stage.put(sort="a")
    stage.transact(update("a", **IS_THERE), **token)
    assert stage.get("a") == {"a": number(1)}
    refused(lambda: stage.transact(put("a"), ClientRequestToken="t" * 37), "clientRequestToken")


def test_transactions_without_a_token_are_repeated(stage: Stage) -> None:
    """developerguide/transaction-apis.html, Idempotency: the token is optional."""
    for _ in range(2):
        stage.transact(update("n", "ADD n :one"))
    assert stage.get("n") == {"n": number(2)}


def test_actions_may_be_of_several_tables(stage: Stage) -> None:
    """developerguide/transaction-apis.html: across one or more tables."""
    stage.transact(put("a"), {"Put": {"TableName": "groups", "Item": {**key("a"), "b": text("c")}}})
    assert stage.tables.get_item(TableName="groups", Key=key("a"), ConsistentRead=True)["Item"]["b"] == text("c")
