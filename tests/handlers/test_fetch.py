"""What callers get when the stage has no waiting time: the answer at once, and when to come back.

Filters and tag filters as HTTP carries them: in JSON, in a frame, and in a parameter.
"""

import json
from typing import Any, cast

import pytest

from penstock_core.filters.filter import tags_of
from penstock_core.quotas.bucket import WaitPool
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_service.adapters.memory.service import memory_instance
from tests.handlers.service import Service
from tests.support.service import SteppedClock, batch, head_of, with_tuning


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def service(clock: SteppedClock) -> Service:
    nobody = WaitPool(name="stage", instances=0)
    service = Service(with_tuning(memory_instance(clock=clock), wait_pool=nobody))
    service.create("orders")
    group = {"topics": ["orders"], "config": {"start": "earliest"}}
    assert service.call("PUT", "/v1/share-groups/workers", group).status in (200, 201)
    clock.sleeps.clear()
    return service


def fetched(service: Service, wait_ms: int) -> Any:
    partition = {"topic": "orders", "partition": 0, "offset": 0}
    answer = service.call("POST", "/v1/fetch", {"partitions": [partition], "wait_ms": wait_ms})
    return frame.decode(answer.body)[0]


def acquired(service: Service, wait_ms: int) -> Any:
    answer = service.call("POST", "/v1/share-groups/workers/acquire", {"wait_ms": wait_ms})
    return frame.decode(answer.body)[0]


def records(service: Service, wait_ms: int) -> Any:
    return service.call("POST", "/v1/share-groups/workers/records", {"wait_ms": wait_ms}).json


def read(service: Service, wait_ms: int) -> Any:
    return service.read(offset="0", wait_ms=str(wait_ms))


CALLS = [fetched, acquired, records, read]


@pytest.mark.parametrize("call", CALLS)
def test_call_that_waits_answers_at_once_and_tells_when_to_come_back(
    service: Service, clock: SteppedClock, call: Any
) -> None:
    assert call(service, 20_000)["retry_after_ms"] == 1_000
    assert clock.sleeps == []


@pytest.mark.parametrize("call", CALLS)
def test_call_that_does_not_wait_has_no_time_to_come_back(service: Service, call: Any) -> None:
    assert "retry_after_ms" not in call(service, 0)


@pytest.mark.parametrize("call", CALLS)
def test_call_that_finds_records_has_no_time_to_come_back(service: Service, call: Any) -> None:
    service.produce(("orders", 0, batch("x")))
    assert "retry_after_ms" not in call(service, 20_000)


ORDERS = {"type": ["order"]}


@pytest.fixture
def tagged() -> Service:
    """Ten records of the topic t: those with even offsets are orders of the tag a, the others of the tag b."""
    service = Service()
    service.call("POST", "/v1/topics", {"name": "t", "config": {"index_tags": True}})
    for number in range(10):
        headers = [["type", "refund" if number % 2 else "order"], ["tag", "b" if number % 2 else "a"]]
        service.call("POST", "/v1/topics/t/records", {"records": [{"value": str(number), "headers": headers}]})
    return service


def fetch(service: Service, policy: Any, **fields: Any) -> tuple[dict[str, Any], list[int]]:
    wanted = {"topic": "t", "partition": 0, "offset": 0, **fields}
    answer = service.call("POST", "/v1/fetch", {"partitions": [wanted], "filter": policy})
    header, body = frame.decode(answer.body)
    [result] = cast("list[dict[str, Any]]", header["partitions"])
    return result, [record.offset for record in decode(body)]


@pytest.mark.parametrize("policy", [ORDERS, json.dumps(ORDERS), {"tag": ["a"]}])
def test_fetch_in_binary_answers_what_matches(tagged: Service, policy: Any) -> None:
    result, offsets = fetch(tagged, policy)
    assert (offsets, result["next_offset"]) == ([0, 2, 4, 6, 8], 10)


def test_filter_of_a_partition_counts_before_that_of_the_request(tagged: Service) -> None:
    assert fetch(tagged, ORDERS, filter={"type": ["refund"]})[1] == [1, 3, 5, 7, 9]
    assert fetch(tagged, ORDERS, filter=None)[1] == list(range(10))


def test_fetch_in_json_answers_what_matches(tagged: Service) -> None:
    path = "/v1/topics/t/partitions/0/records"
    answer = tagged.call("GET", path, filter=json.dumps({"type": ["refund"]})).json
    assert [record["offset"] for record in answer["records"]] == [1, 3, 5, 7, 9]
    assert answer["next_offset"] == 10
    answer = tagged.call("GET", path, filter='{"type": ["none"]}', offset="3").json
    assert (answer["records"], answer["next_offset"], answer["high_watermark"]) == ([], 10, 10)


@pytest.mark.parametrize("policy", [7, [], True, "{", {"type": [{"prefix": 3}]}])
def test_wrong_filter_is_told_with_its_place(tagged: Service, policy: Any) -> None:
    wanted = {"topic": "t", "partition": 0, "offset": 0}
    for body in ({"partitions": [wanted], "filter": policy}, {"partitions": [{**wanted, "filter": policy}]}):
        error = tagged.call("POST", "/v1/fetch", body).error
        assert error["code"] == "INVALID_FILTER"
        assert error["place"] == ("type[0].prefix" if isinstance(policy, dict) else "")
    if isinstance(policy, dict):
        path = "/v1/topics/t/partitions/0/records"
        assert tagged.call("GET", path, filter=json.dumps(policy)).error["place"] == "type[0].prefix"


def sent(service: Service, headers: list[tuple[str, bytes | None]], **fields: Any) -> Any:
    data = encode([NewRecord(1_000, None, b"v", tuple(headers))])
    entry = {"topic": "t", "partition": 0, "length": len(data), **fields}
    answer = service.call("POST", "/v1/produce", frame.encode({"acks": "all", "batches": [entry]}, [data]))
    return answer.error if answer.status >= 400 else answer.json["results"][0]


def test_produce_in_binary_keeps_the_tag_filter_if_the_topic_wants_it(tagged: Service) -> None:
    headers: list[tuple[str, bytes | None]] = [("tag", b"order")]
    for fields, expected in [({"tag_filter": "0100020000000001"}, 0x0100020000000001), ({}, None)]:
        assert "error" not in sent(tagged, headers, **fields)
        assert head_of(tagged.instance, "t").tail[-1].tag_filter == expected
    tagged.call("PATCH", "/v1/topics/t", {"config": {"index_tags": False}})
    tagged.instance.topic_cache.forget("t")
    sent(tagged, headers, tag_filter="0100020000000001")
    assert head_of(tagged.instance, "t").tail[-1].tag_filter is None


def test_tag_filter_is_checked_or_made_where_records_are_validated(tagged: Service) -> None:
    tagged.call("PATCH", "/v1/topics/t", {"config": {"validate_records": True}})
    tagged.instance.topic_cache.forget("t")
    headers: list[tuple[str, bytes | None]] = [("tag", b"order")]
    assert sent(tagged, headers, tag_filter="0" * 16)["error"]["code"] == "CORRUPT_BATCH"
    for fields in ({"tag_filter": "0100020000000001"}, {}):
        assert "error" not in sent(tagged, headers, **fields)
        assert head_of(tagged.instance, "t").tail[-1].tag_filter == tags_of(headers)


@pytest.mark.parametrize("value", [1, None, "", "0" * 15, "0" * 17, "G" * 16, "A" * 16, " " * 16])
def test_tag_filter_must_be_sixteen_digits(tagged: Service, value: Any) -> None:
    assert sent(tagged, [], tag_filter=value)["code"] == "INVALID_REQUEST"


@pytest.mark.parametrize("value", [1, "true", []])
def test_index_tags_is_true_or_false(tagged: Service, value: Any) -> None:
    error = tagged.call("PATCH", "/v1/topics/t", {"config": {"index_tags": value}}).error
    assert error["code"] == "INVALID_CONFIG"
