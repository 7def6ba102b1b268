"""Binary produce and fetch: frames, field types, and that no bytes whatever are answered by anything but our errors."""

import json
import struct
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock_core import limits
from penstock_core.records import frame
from penstock_core.records.codec import decode
from penstock_core.records.record_batch import Compression
from tests.handlers.service import Service, checked_error
from tests.support.service import batch

NUMBERS = [True, -1, 1.5, 2**63, 10**400]
WRONG_NUMBERS: list[object] = [*NUMBERS, None, "1", "", [], {}, [1]]
WRONG_TEXTS: list[object] = [*NUMBERS, 1, None, [], {}]
WRONG_ARRAYS: list[object] = [*NUMBERS, 1, None, "1", {}, [1], [None], ["x"]]
SHORT = {"partitions": [{"topic": "orders", "partition": 0, "offset": 0}]}


def _framed(header: object, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">I", len(text)) + text + body


def test_produce_and_fetch_go_round_with_every_compression(orders: Service) -> None:
    sent = [batch(f"{codec.name}{n}" * 30, compression=codec) for n in range(2) for codec in Compression]
    first, second = b"".join(sent[:5]), b"".join(sent[5:])
    answer = orders.produce(("orders", 2, first), ("orders", 0, second), acks="all")
    assert answer.json == {
        "results": [
            {"topic": "orders", "partition": 2, "base_offset": 0, "next_offset": 5},
            {"topic": "orders", "partition": 0, "base_offset": 0, "next_offset": 5},
        ]
    }
    wanted = [{"topic": "orders", "partition": number, "offset": 0} for number in (0, 1, 2)]
    results, data = orders.fetch(*wanted)
    assert [result["next_offset"] for result in results] == [5, 0, 5]
    assert [(result["log_start_offset"], result["high_watermark"]) for result in results] == [(0, 5), (0, 0), (0, 5)]
    values = [[record.value for record in decode(part)] for part in data]
    assert values == [
        [f"{codec.name}1".encode() * 30 for codec in Compression],
        [],
        [f"{codec.name}0".encode() * 30 for codec in Compression],
    ]


def test_produce_answers_each_entry_when_some_are_bad(orders: Service) -> None:
    data = batch("v")
    answer = orders.produce(
        ("orders", 0, data), ("orders", 7, data), ("\ud800", 0, data), ("orders", 1, data[:-1] + b"\1")
    )
    assert answer.status == 200
    good, *bad = answer.json["results"]
    assert good["base_offset"] == 0
    codes = [checked_error(result["error"])["code"] for result in bad]
    assert codes == ["UNKNOWN_PARTITION", "INVALID_NAME", "CORRUPT_BATCH"]


def test_fetch_answers_each_partition_when_some_are_bad(orders: Service) -> None:
    orders.produce(("orders", 0, batch("v")))
    wanted = [("orders", 0, 0), ("missing", 0, 0), ("orders", 9, 0), ("orders", 1, 5)]
    results, data = orders.fetch(*({"topic": t, "partition": p, "offset": o} for t, p, o in wanted))
    assert results[0]["length"] == len(data[0]) > 0
    codes = [checked_error(result["error"])["code"] for result in results[1:]]
    assert codes == ["UNKNOWN_TOPIC", "UNKNOWN_PARTITION", "OFFSET_OUT_OF_RANGE"]
    assert (results[3]["error"]["log_start_offset"], results[3]["error"]["high_watermark"]) == (0, 0)


BROKEN_FRAMES = {
    "empty": (b"", "0 bytes"),
    "no length": (b"\0\0\0", "3 bytes"),
    "header cut off": (_framed({"batches": []})[:-1], "truncated"),
    "header too long": (struct.pack(">I", limits.FRAME_HEADER_BYTES_MAX + 1) + b" " * 300_000, "262145"),
    "length near the end": (b"\xff\xff\xff\xff", "4294967295"),
    "not JSON": (_framed(b"{"), "not JSON"),
    "not UTF-8": (_framed(b'{"acks":"\xff"}'), "UTF-8"),
    "not a number of JSON": (_framed(b'{"acks":NaN}'), "NaN"),
    "nested without end": (_framed(b"[" * 100_000), "not JSON"),
    "an endless number": (_framed(b'{"acks":' + b"9" * 5_000 + b"}"), "digits"),
    "an array": (_framed([]), "list"),
    "null": (_framed(None), "NoneType"),
    "no batches": (_framed({}), "'batches'"),
    "none at all": (_framed({"batches": []}), "0 topic-partitions"),
    "unknown field": (_framed({"batches": [], "ack": "all"}), "'ack'"),
    "unknown acks": (_framed({"batches": [], "acks": "most"}), "'most'"),
    "acks of a wrong type": (_framed({"batches": [], "acks": 1}), "acks=1"),
    "body too short": (
        _framed({"batches": [{"topic": "orders", "partition": 0, "length": 10}]}, b"x" * 9),
        "9 follow",
    ),
    "body too long": (
        _framed({"batches": [{"topic": "orders", "partition": 0, "length": 10}]}, b"x" * 11),
        "11 follow",
    ),
}


@pytest.mark.parametrize("name", BROKEN_FRAMES)
def test_produce_refuses_a_broken_frame(orders: Service, name: str) -> None:
    body, told = BROKEN_FRAMES[name]
    answer = orders.call("POST", "/v1/produce", body)
    assert (answer.status, answer.error["code"]) == (400, "INVALID_REQUEST")
    assert told in answer.error["message"]


def _wrong(texts: Sequence[str], arrays: Sequence[str], numbers: Sequence[str]) -> list[tuple[str, object]]:
    kinds = ((texts, WRONG_TEXTS), (arrays, WRONG_ARRAYS), (numbers, WRONG_NUMBERS))
    return [(name, value) for names, values in kinds for name in names for value in values]


@pytest.mark.parametrize(
    ("field", "value"),
    _wrong(["topic"], ["batches"], ["partition", "length"]),
    ids=lambda value: repr(value)[:12],
)
def test_produce_refuses_wrong_types_and_bounds(orders: Service, field: str, value: object) -> None:
    named: dict[str, object] = {"topic": "orders", "partition": 0, "length": 0}
    header = {"batches": value} if field == "batches" else {"batches": [named | {field: value}]}
    answer = orders.call("POST", "/v1/produce", _framed(header))
    assert (answer.status, answer.error["code"]) == (400, "INVALID_REQUEST")
    assert field in answer.error["message"]


@pytest.mark.parametrize(
    ("field", "value"),
    _wrong(["topic"], ["partitions"], ["partition", "offset", "max_bytes", "*max_bytes", "*min_bytes", "*wait_ms"]),
    ids=lambda value: repr(value)[:12],
)
def test_fetch_refuses_wrong_types_and_bounds(orders: Service, field: str, value: object) -> None:
    body: dict[str, object] = dict(SHORT)
    if field == "partitions":
        body["partitions"] = value
    elif field.startswith("*"):
        body[field[1:]] = value
    else:
        body["partitions"] = [{"topic": "orders", "partition": 0, "offset": 0} | {field: value}]
    answer = orders.call("POST", "/v1/fetch", body)
    assert (answer.status, answer.error["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"max_bytes": 0}, "max_bytes=0"),
        ({"max_bytes": limits.FETCH_BYTES_MAX + 1}, "max_bytes=4194305"),
        ({"min_bytes": limits.FETCH_BYTES_MAX + 1}, "min_bytes=4194305"),
        ({"wait_ms": limits.FETCH_WAIT_MS_MAX + 1}, "wait_ms=20001"),
        ({"waits": 1}, "'waits'"),
        ({"partitions": [{"topic": "orders", "partition": 0}]}, "'offset'"),
        ({"partitions": [{"topic": "orders", "partition": 0, "offset": 0, "epoch": 1}]}, "'epoch'"),
        ({"partitions": [{"topic": "orders", "partition": 1_000, "offset": 0}]}, "partition=1000"),
        ({"partitions": SHORT["partitions"] * 101}, "101 topic-partitions"),
        ({"partitions": []}, "0 topic-partitions"),
    ],
)
def test_fetch_refuses_and_names_what_is_out_of_bounds(orders: Service, fields: dict[str, object], told: str) -> None:
    answer = orders.call("POST", "/v1/fetch", SHORT | fields)
    assert (answer.status, answer.error["code"]) == (400, "INVALID_REQUEST")
    assert told in answer.error["message"]


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"7", b"{", b"\xff\xfe{\0}\0", b'{"partitions":[' * 50_000])
def test_fetch_refuses_what_is_no_json_object(orders: Service, body: bytes) -> None:
    answer = orders.call("POST", "/v1/fetch", body)
    assert (answer.status, answer.error["code"]) == (400, "INVALID_REQUEST")


def test_largest_batch_goes_in_and_comes_out(service: Service) -> None:
    service.create("large", max_batch_bytes=limits.BATCH_BYTES_MAX)
    data = batch("x" * (limits.BATCH_BYTES_MAX - 61 - 13))
    assert limits.BATCH_BYTES_MAX - 8 <= len(data) <= limits.BATCH_BYTES_MAX
    assert service.produce(("large", 0, data)).json["results"][0]["base_offset"] == 0
    [result], [found] = service.fetch({"topic": "large", "partition": 0, "offset": 0})
    assert (result["next_offset"], found) == (1, data)


VALID = frame.encode(
    {"acks": "quorum", "batches": [{"topic": "orders", "partition": 0, "length": len(batch("some", "values"))}]},
    [batch("some", "values")],
)


def _mutated(data: bytes) -> st.SearchStrategy[bytes]:
    """`data` with bytes changed, cut out or put in."""

    def mutate(edits: list[tuple[int, int, bytes]]) -> bytes:
        changed = data
        for at, removed, added in edits:
            changed = changed[:at] + added + changed[at + removed :]
        return changed

    edit = st.tuples(st.integers(0, len(data)), st.integers(0, 4), st.binary(max_size=4))
    return st.lists(edit, min_size=1, max_size=4).map(mutate)


def _check_any_answer(service: Service, path: str, body: bytes) -> None:
    answer = service.call("POST", path, body)
    assert answer.status == 200 or 400 <= answer.status < 500
    if answer.status != 200:
        assert not answer.error["maybe_applied"]
    elif path == "/v1/produce":
        for result in answer.json["results"]:
            assert "base_offset" in result or checked_error(result["error"])


FUZZ = settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("path", ["/v1/produce", "/v1/fetch"])
@FUZZ
@given(body=st.one_of(st.binary(max_size=300), st.binary(max_size=200).map(_framed)))
def test_any_bytes_are_answered_by_an_error_of_ours(orders: Service, path: str, body: bytes) -> None:
    _check_any_answer(orders, path, body)


@pytest.mark.slow
@FUZZ
@given(body=_mutated(VALID))
def test_a_mutated_produce_is_taken_or_answered_by_an_error_of_ours(orders: Service, body: bytes) -> None:
    _check_any_answer(orders, "/v1/produce", body)


@pytest.mark.slow
@FUZZ
@given(body=_mutated(json.dumps(SHORT | {"max_bytes": 1_000, "min_bytes": 0, "wait_ms": 0}).encode()))
def test_a_mutated_fetch_is_taken_or_answered_by_an_error_of_ours(orders: Service, body: bytes) -> None:
    _check_any_answer(orders, "/v1/fetch", body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


FIELDS = ("name", "partitions", "config", "records", "offsets", "batches", "max_bytes", "0")


@pytest.mark.slow
@settings(FUZZ, max_examples=150)
@given(body=st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, JSON)))
@pytest.mark.parametrize(
    "route",
    [
        "POST /v1/topics",
        "PATCH /v1/topics/orders",
        "POST /v1/topics/orders/records",
        "POST /v1/topics/orders/truncate",
        "POST /v1/groups/g/offsets",
        "POST /v1/fetch",
    ],
)
def test_any_json_is_taken_or_answered_by_an_error_of_ours(orders: Service, route: str, body: object) -> None:
    method, path = route.split(" ", 1)
    answer = orders.call(method, path, body)
    assert answer.status < 300 or 400 <= answer.status < 500
    if answer.status >= 400:
        assert not answer.error["maybe_applied"]
