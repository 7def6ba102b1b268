"""Answers of functions and endpoints: which records they name, and answers that fail the whole batch."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.push.batch import Answer, Answered, Failed, Failure
from penstock_core.push.targets.item_failures import decode_answer
from tests.support.push_records import StoredRecord, push_batch, push_record

BATCH = push_batch(
    [
        push_record(StoredRecord(15), "orders", 0),
        push_record(StoredRecord(16), "orders", 0),
        push_record(StoredRecord(15), "orders-0", 1),
    ]
)
ALL_HANDLED = Answered()


def answer_of(document: Any, *, is_json: bool = True) -> Answer:
    return decode_answer(json.dumps(document).encode(), BATCH, is_json=is_json)


def named(*identifiers: Any) -> dict[str, Any]:
    return {"batchItemFailures": [{"itemIdentifier": each} for each in identifiers]}


@pytest.mark.parametrize(
    "document",
    [None, {}, "done", 7, [], {"statusCode": 200}, {"batchItemFailures": []}, {"batchItemFailures": None}],
)
def test_answer_that_names_no_record_handles_all(document: Any) -> None:
    assert answer_of(document) == ALL_HANDLED


def test_empty_answer_handles_all() -> None:
    assert decode_answer(b"", BATCH, is_json=True) == ALL_HANDLED


@pytest.mark.parametrize(
    "identifier", [{"partition": "orders-0", "offset": 16}, "orders-0-16"], ids=["as AWS has it", "as Middy writes it"]
)
def test_named_record_failed(identifier: Any) -> None:
    found = answer_of(named(identifier))
    assert found == Answered(
        failed=frozenset({BATCH.records[1].place}), error="the target names 1 of 3 records in batchItemFailures"
    )


def test_topic_whose_name_ends_like_a_partition_is_not_mistaken() -> None:
    found = answer_of(named({"partition": "orders-0-1", "offset": 15}, "orders-0-1-15", "orders-0-15"))
    assert isinstance(found, Answered)
    assert found.failed == {BATCH.records[2].place, BATCH.records[0].place}


@pytest.mark.parametrize(
    "identifier",
    [
        None,
        "",
        17,
        "orders-0",
        "orders-0-17",
        "orders-0-²",
        "orders-0-" + "9" * 5_000,
        {"partition": "orders-1", "offset": 15},
        {"partition": "orders-0", "offset": "15"},
        {"partition": "orders-0", "offset": True},
        {"partition": 0, "offset": 15},
        {"offset": 15},
    ],
)
def test_identifier_that_names_no_record_of_the_batch_fails_all(identifier: Any) -> None:
    found = answer_of(named("orders-0-15", identifier))
    assert isinstance(found, Failed)
    assert found.failure is Failure.REFUSAL
    assert "names no record of the batch" in found.error


@pytest.mark.parametrize("failures", ["all", {"itemIdentifier": "orders-0-15"}, 3, False])
def test_failures_that_are_no_array_fail_all(failures: Any) -> None:
    found = answer_of({"batchItemFailures": failures})
    assert isinstance(found, Failed)
    assert "is not an array" in found.error


@pytest.mark.parametrize("entry", [None, "orders-0-15", [], {"itemidentifier": "orders-0-15"}])
def test_entry_without_identifier_fails_all(entry: Any) -> None:
    assert isinstance(answer_of({"batchItemFailures": [entry]}), Failed)


@pytest.mark.parametrize("data", [b"<html>", b"\xff", b"[" * 100_000])
def test_text_that_is_not_json_fails_a_function_and_suits_an_endpoint(data: bytes) -> None:
    found = decode_answer(data, BATCH, is_json=True)
    assert isinstance(found, Failed)
    assert "is not JSON" in found.error
    assert decode_answer(data, BATCH, is_json=False) == ALL_HANDLED


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)
)


@given(json_values)
def test_any_failures_are_understood_or_refused(failures: Any) -> None:
    found = answer_of({"batchItemFailures": failures})
    assert isinstance(found, Failed) or found.failed <= {each.place for each in BATCH.records}
