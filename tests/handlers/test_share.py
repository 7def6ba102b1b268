"""Share groups over HTTP: JSON and binary, wrong requests, and what a log line tells.

Records that expire, as HTTP carries them: the field and the header in JSON, the flag in a frame.
"""

from typing import Any

import pytest

from penstock_core import limits
from penstock_core.limits import EXPIRES_IN_MS_MAX
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.records.expiry import EXPIRES_AT_HEADER
from tests.handlers.service import Service
from tests.support.service import head_of

GROUP = "/v1/share-groups/workers"


@pytest.fixture
def workers(orders: Service) -> Service:
    """A service with the topic orders, of which partition 0 has ten records, and a share group."""
    orders.send(*[{"value": f"v{n}", "key": "k", "headers": [["h", "x"]], "partition": 0} for n in range(10)])
    assert orders.call("PUT", GROUP, {"topics": ["orders"]}).status == 200
    return orders


def acquire(service: Service, **wish: Any) -> Any:
    answer = service.call("POST", f"{GROUP}/records", wish)
    assert answer.status == 200, answer.body
    return answer.json


def test_records_come_with_their_locks(workers: Service) -> None:
    answer = acquire(workers, consumer_id="w1", max_records=3, lock_ms=5_000)
    assert [record["offset"] for record in answer["records"]] == [0, 1, 2]
    [lock_id] = {record["lock_id"] for record in answer["records"]}
    first = answer["records"][0]
    assert (first["topic"], first["partition"], first["delivery_count"]) == ("orders", 0, 1)
    assert (first["key"], first["value"], first["headers"]) == ("k", "v0", [["h", "x"]])
    assert 4_000 < first["until_ms_left"] <= 5_000 == answer["lock_ms"]
    accepted = {"topic": "orders", "partition": 0, "lock_id": lock_id, "type": "accept", "offsets": None}
    done = workers.call("POST", f"{GROUP}/acknowledge", {"acknowledge": [accepted]}).json["acknowledged"]
    assert done == [{"topic": "orders", "partition": 0, "lock_id": lock_id, "offsets": [[0, 3]], "result": "ok"}]


def test_binary_answer_has_the_same_locks_and_whole_batches(workers: Service) -> None:
    answer = workers.call("POST", f"{GROUP}/acquire", {"max_records": 3, "nonce": "abcdefgh"})
    header, data = frame.decode(answer.body)
    partitions: Any = header["partitions"]
    [lock] = partitions
    assert (lock["ranges"], lock["delivery_count"], lock["length"]) == ([[0, 3]], 1, len(data))
    assert [record.offset for record in decode(data)] == [*range(10)], "batches stay as they are stored"
    again = acquire(workers, nonce="abcdefgh", repeat=True)["records"]
    names = {record["lock_id"].partition("~")[0] for record in again}
    assert names == {lock["lock_id"].partition("~")[0]}


@pytest.mark.parametrize(("config", "told"), [({}, None), ({"sharing": "fair"}, 250), ({"topic_order": "listed"}, 250)])
def test_answer_tells_how_much_work_to_hold_where_it_matters_what_comes_next(
    workers: Service, config: dict[str, str], told: int | None
) -> None:
    assert workers.call("PUT", GROUP, {"topics": ["orders"], "config": config}).status == 200
    assert acquire(workers).get("work_ms") == told
    header, _ = frame.decode(workers.call("POST", f"{GROUP}/acquire", {"max_records": 3}).body)
    assert header.get("work_ms") == told


@pytest.mark.parametrize("path", ["records", "acquire"])
def test_part_of_a_lock_tells_the_lock_id_to_go_on_with(workers: Service, path: str) -> None:
    [lock_id] = {record["lock_id"] for record in acquire(workers, max_records=3)["records"]}
    part = {"topic": "orders", "partition": 0, "lock_id": lock_id, "type": "accept", "offsets": [[0, 1]]}
    answer = workers.call("POST", f"{GROUP}/{path}", {"max_records": 1, "acknowledge": [part]})
    document: Any = answer.json if path == "records" else frame.decode(answer.body)[0]
    [told] = document["acknowledged"]
    assert told["next_lock_id"].partition("~")[0] == lock_id.partition("~")[0]
    rest = {**part, "lock_id": told["next_lock_id"], "offsets": None}
    [done] = workers.call("POST", f"{GROUP}/acknowledge", {"acknowledge": [rest]}).json["acknowledged"]
    assert (done["offsets"], done["result"], "next_lock_id" in done) == ([[1, 3]], "ok", False)


def test_lost_lock_is_told_by_range_and_changes_nothing(workers: Service) -> None:
    [lock_id] = {record["lock_id"] for record in acquire(workers, max_records=3)["records"]}
    wrong = {"topic": "orders", "partition": 0, "lock_id": lock_id, "type": "accept", "offsets": [[1, 2], [7, 9]]}
    good, bad = workers.call("POST", f"{GROUP}/acknowledge", {"acknowledge": [wrong]}).json["acknowledged"]
    assert (good["result"], good["offsets"]) == ("ok", [[1, 2]])
    assert (bad["result"], bad["offsets"]) == ("LOCK_LOST", [[7, 9]])
    assert "another consumer" in bad["message"]


ACK = {"topic": "orders", "partition": 0, "lock_id": "abcdefgh.0", "type": "accept"}


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("records", {"max_records": 0}, "max_records=0"),
        ("records", {"max_records": limits.SHARE_RECORDS_MAX + 1}, "500"),
        ("records", {"lock_ms": 999}, "lock_ms=999"),
        ("records", {"wait_ms": 20_001}, "wait_ms"),
        ("records", {"nonce": "short"}, "nonce"),
        ("records", {"nonce": "abcdefgh", "repeat": 1}, "repeat"),
        ("records", {"nonce": "a b c d e f"}, "nonce"),
        ("records", {"consumer_id": "x" * 101}, "consumer_id"),
        ("records", {"consumer_id": "\x1b[2J"}, "consumer_id"),
        ("records", {"topics": []}, "topics"),
        ("records", {"topics": ["returns"]}, "returns"),
        ("acquire", {"group": "x"}, "unknown field"),
        ("acquire", {"arm": 1}, "arm=1"),
        ("acknowledge", {}, "acknowledge"),
        ("acknowledge", {"acknowledge": []}, "acknowledge"),
        ("acknowledge", {"acknowledge": [{**ACK, "type": "nack"}]}, "nack"),
        ("acknowledge", {"acknowledge": [{**ACK, "offsets": [[2, 2]]}]}, "[2, 2]"),
        ("acknowledge", {"acknowledge": [{**ACK, "offsets": [[1, True]]}]}, "True"),
        ("acknowledge", {"acknowledge": [{**ACK, "offsets": []}]}, "0 ranges"),
        ("acknowledge", {"acknowledge": [{**ACK, "lock_id": "abcdefgh.0~!!"}]}, "send it unchanged"),
        ("acknowledge", {"acknowledge": [{**ACK, "delay_ms": 5}]}, "goes with type release"),
        ("acknowledge", {"acknowledge": [{**ACK, "type": "reject", "reason": "ö" * 101}]}, "202 bytes"),
        ("acknowledge", {"acknowledge": [{**ACK, "type": "release", "delay_ms": -1}]}, "delay_ms=-1"),
        ("acknowledge", {"acknowledge": [{**ACK, "type": "renew", "lock_ms": 12 * 3_600_000 + 1}]}, "lock_ms"),
        ("acknowledge", {"acknowledge": [ACK] * 101}, "100 at most"),
    ],
)
def test_wrong_request_is_refused_with_its_value(workers: Service, path: str, body: object, told: str) -> None:
    error = workers.call("POST", f"{GROUP}/{path}", body).error
    assert error["code"] == "INVALID_REQUEST"
    assert told in error["message"]
    assert len(acquire(workers)["records"]) == 10, "nothing was locked"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", GROUP, b""),
        ("DELETE", GROUP, b""),
        ("POST", f"{GROUP}/reset", {"topic": "orders", "to": "latest"}),
        ("POST", f"{GROUP}/records", {}),
        ("POST", f"{GROUP}/acquire", {}),
        ("POST", f"{GROUP}/acknowledge", {"acknowledge": [ACK]}),
    ],
)
def test_unknown_group_is_404(orders: Service, method: str, path: str, body: object) -> None:
    answer = orders.call(method, path, body)
    assert (answer.status, answer.error["code"]) == (404, "UNKNOWN_SHARE_GROUP")


@pytest.mark.parametrize("to", ["soon", {}, {"offset": 1, "timestamp_ms": 2}, {"offset": -1}, 5])
def test_reset_goes_to_one_place(workers: Service, to: object) -> None:
    answer = workers.call("POST", f"{GROUP}/reset", {"topic": "orders", "to": to})
    assert (answer.status, answer.error["code"]) == (400, "INVALID_REQUEST")


def test_reset_of_a_topic_that_the_group_does_not_read(workers: Service) -> None:
    workers.create("returns")
    answer = workers.call("POST", f"{GROUP}/reset", {"topic": "returns", "to": "latest"})
    assert (answer.status, answer.error["code"]) == (404, "UNKNOWN_TOPIC")


def test_values_that_are_no_text_come_in_base64(orders: Service) -> None:
    orders.send({"value_base64": "/w==", "partition": 0}, {"value": None, "partition": 0})
    orders.call("PUT", GROUP, {"topics": ["orders"]})
    binary, null = acquire(orders)["records"]
    assert binary["value_base64"] == "/w=="
    assert null["value"] is None


def test_results_that_fit_into_no_frame_are_told(workers: Service) -> None:
    acquire(workers, max_records=1)
    wide = {**ACK, "offsets": [[2 * n, 2 * n + 1] for n in range(10**9, 10**9 + 512)]}
    answer = workers.call("POST", f"{GROUP}/acquire", {"acknowledge": [wide] * 100})
    assert (answer.status, answer.error["code"], answer.error["maybe_applied"]) == (413, "RESPONSE_TOO_LARGE", True)


def test_description_tells_the_state_of_one_record(workers: Service) -> None:
    acquire(workers, consumer_id="w1", max_records=3, lock_ms=5_000, nonce="w1--abcdefgh")
    answer = workers.call("GET", GROUP, topic="orders", partition="0", offset="2").json
    assert [(each["topic"], each["partition"]) for each in answer["partitions"]] == [("orders", 0)]
    assert (answer["record"]["state"], answer["record"]["consumer"]) == ("locked", "w1")
    assert "record" not in workers.call("GET", GROUP).json
    wrong: tuple[tuple[dict[str, str], str], ...] = (
        ({"topic": "orders", "partition": "0"}, "INVALID_REQUEST"),
        ({"offset": "0"}, "INVALID_REQUEST"),
        ({"topic": "orders", "partition": "0", "offset": "10"}, "OFFSET_OUT_OF_RANGE"),
        ({"topic": "orders", "partition": "99", "offset": "0"}, "UNKNOWN_PARTITION"),
        ({"topic": "returns", "partition": "0", "offset": "0"}, "UNKNOWN_PARTITION"),
    )
    for query, code in wrong:
        assert workers.call("GET", GROUP, **query).json["error"]["code"] == code, query


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
