"""Records that expire, as HTTP carries them: the field and the header in JSON, the flag in a frame."""

from typing import Any

import pytest

from penstock_core.limits import EXPIRES_IN_MS_MAX
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.expiry import EXPIRES_AT_HEADER
from tests.handlers.service import Service
from tests.support.service import head_of

PATH = "/v1/topics/t/records"


@pytest.fixture
def topic() -> Service:
    service = Service()
    service.call("POST", "/v1/topics", {"name": "t"})
    return service


def produced(service: Service, *records: dict[str, Any], **body: Any) -> Any:
    answer = service.call("POST", PATH, {"records": [{"value": "v", **each} for each in records], **body})
    return answer.error if answer.status >= 400 else answer.json["offsets"]


def headers_of(service: Service) -> list[dict[str, str]]:
    answer = service.call("GET", "/v1/topics/t/partitions/0/records").json
    return [dict(each["headers"]) for each in answer["records"]]


def flags(service: Service) -> list[bool]:
    return [ref.may_expire for ref in head_of(service.instance, "t").tail]


def sent(service: Service, value: bytes | None = b"1790000000000", **fields: Any) -> Any:
    data = encode([NewRecord(1_000, None, b"v", [] if value is None else [(EXPIRES_AT_HEADER, value)])])
    entry = {"topic": "t", "partition": 0, "length": len(data), **fields}
    answer = service.call("POST", "/v1/produce", frame.encode({"acks": "all", "batches": [entry]}, [data]))
    return answer.error if answer.status >= 400 else answer.json["results"][0]


def test_json_record_gets_the_header_by_the_clock_of_the_service_and_its_batch_the_flag(topic: Service) -> None:
    before_ms = topic.instance.clock.now_ms()
    produced(topic, {"expires_in_ms": 30_000, "headers": [["a", "b"]]}, {})
    [first, second] = headers_of(topic)
    assert first.keys() == {"a", EXPIRES_AT_HEADER}
    assert before_ms + 30_000 <= int(first[EXPIRES_AT_HEADER]) <= topic.instance.clock.now_ms() + 30_000
    assert second == {}
    assert flags(topic) == [True]


def test_json_record_without_an_expiry_has_no_flag(topic: Service) -> None:
    produced(topic, {"headers": [["a", "b"]]})
    assert flags(topic) == [False]


def test_json_record_with_the_header_of_its_own_has_the_flag(topic: Service) -> None:
    produced(topic, {"headers": [[EXPIRES_AT_HEADER, "1790000000000"]]})
    assert headers_of(topic) == [{EXPIRES_AT_HEADER: "1790000000000"}]
    assert flags(topic) == [True]


@pytest.mark.parametrize("value", [0, -1, EXPIRES_IN_MS_MAX + 1, 1.5, "1000", True, 10**30])
def test_json_refuses_a_duration_outside_of_its_bounds(topic: Service, value: Any) -> None:
    error = produced(topic, {}, {"expires_in_ms": value})
    assert error["code"] == "INVALID_REQUEST"
    assert "expires_in_ms" in error["message"]
    assert head_of(topic.instance, "t").next_offset == 0


@pytest.mark.parametrize("value", [None, "", "1790000000", "1790000000000000", "soon", {"base64": "/w=="}])
def test_json_refuses_a_header_that_is_no_time(topic: Service, value: Any) -> None:
    error = produced(topic, {}, {"headers": [[EXPIRES_AT_HEADER, value]]})
    assert error["code"] == "INVALID_REQUEST"
    assert "records[1]" in error["message"]
    assert "13 decimal digits" in error["message"]


def test_json_refuses_two_headers_and_a_header_next_to_the_field(topic: Service) -> None:
    header = [EXPIRES_AT_HEADER, "1790000000000"]
    for record in ({"headers": [header, header]}, {"headers": [header], "expires_in_ms": 1}):
        assert produced(topic, record)["code"] == "INVALID_REQUEST"


def test_json_sequence_takes_the_header_and_not_the_field(topic: Service) -> None:
    place = {"partition": 0, "timestamp_ms": 1_790_000_000_000}
    sequence = {"producer_id": 7, "first_sequence": 0}
    error = produced(topic, {**place, "expires_in_ms": 1_000}, sequence=sequence)
    assert (error["code"], EXPIRES_AT_HEADER in error["message"]) == ("INVALID_REQUEST", True)
    record = {**place, "headers": [[EXPIRES_AT_HEADER, "1790000001000"]]}
    for _ in range(2):
        assert produced(topic, record, sequence=sequence) == [{"partition": 0, "offset": 0}]
    assert flags(topic) == [True], "the repeat has stored nothing"


@pytest.mark.parametrize(
    ("fields", "expected"), [({}, False), ({"may_expire": False}, False), ({"may_expire": True}, True)]
)
def test_frame_tells_the_flag_and_no_batch_is_decoded_for_it(
    topic: Service, fields: dict[str, Any], expected: bool
) -> None:
    assert "error" not in sent(topic, **fields)
    assert flags(topic) == [expected]


@pytest.mark.parametrize("value", [1, "true", None, []])
def test_flag_in_a_frame_is_true_or_false(topic: Service, value: Any) -> None:
    assert sent(topic, may_expire=value)["code"] == "INVALID_REQUEST"


@pytest.mark.parametrize("flag", [False, True])
def test_topic_that_validates_its_records_sets_the_flag_by_them(topic: Service, flag: bool) -> None:
    topic.call("PATCH", "/v1/topics/t", {"config": {"validate_records": True}})
    sent(topic, may_expire=flag)
    sent(topic, None, may_expire=flag)
    assert flags(topic) == [True, False]


def test_topic_that_validates_its_records_refuses_a_header_that_is_no_time(topic: Service) -> None:
    topic.call("PATCH", "/v1/topics/t", {"config": {"validate_records": True}})
    error = sent(topic, b"1790000000")["error"]
    assert error["code"] == "INVALID_RECORD"
    assert "13 decimal digits" in error["message"]
