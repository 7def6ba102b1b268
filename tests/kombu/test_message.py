from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Headers
from penstock.model.share import ShareRecord
from penstock_kombu.message import NotAMessageError, WireMessage, from_record, to_record

_NOW_MS = 1_800_000_000_000
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3),
    max_leaves=8,
)
_HEADERS = st.dictionaries(st.text().filter(lambda name: name not in ("eta", "__type__")), _JSON, max_size=4)


def _message(body: str | bytes = "[]", **headers: Any) -> dict[str, Any]:
    return {
        "body": body,
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": headers,
        "properties": {"correlation_id": "t1"},
    }


def _record(sent: WireMessage, *, delivery_count: int = 1) -> ShareRecord:
    return ShareRecord("celery", 0, 7, 1, None, sent.value, sent.headers, delivery_count, "lock")


def test_message_is_a_record_whose_value_is_the_body() -> None:
    sent = to_record(_message('[["a"], {}, {}]', task="add", id="t1"), "", "celery")
    assert sent == WireMessage(
        value=b'[["a"], {}, {}]',
        headers=(
            ("content-type", b"application/json"),
            ("content-encoding", b"utf-8"),
            (
                "kombu",
                b'{"headers": {"task": "add", "id": "t1"}, "properties": {"correlation_id": "t1"}, '
                b'"exchange": "", "routing_key": "celery"}',
            ),
        ),
        deliver_at_ms=None,
    )


@given(st.text() | st.binary(), _HEADERS, st.text(), st.text())
def test_message_comes_back_as_it_was_sent(
    body: str | bytes, headers: dict[str, Any], exchange: str, routing_key: str
) -> None:
    message = {**_message(body.encode(errors="replace") if isinstance(body, str) else body), "headers": headers}
    found = from_record(_record(to_record(message, exchange, routing_key)), _NOW_MS)
    assert found == {
        "body": message["body"],
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "headers": headers,
        "properties": {"correlation_id": "t1"},
        "delivery_info": {"exchange": exchange, "routing_key": routing_key, "redelivered": False},
    }


def test_message_says_that_it_was_delivered_before() -> None:
    found = from_record(_record(to_record(_message(), "", "celery"), delivery_count=2), _NOW_MS)
    assert found["delivery_info"]["redelivered"] is True


@pytest.mark.parametrize(
    ("eta", "deliver_at_ms"),
    [
        ("2027-01-15T08:00:00+00:00", _NOW_MS),
        ("2027-01-15T08:00:00.250000Z", _NOW_MS + 250),
        ("2027-01-15T10:00:00+02:00", _NOW_MS),
        ("2027-01-15T08:00:00", None),  # of a time zone that only the worker knows
        ("tomorrow", None),
        (None, None),
    ],
)
def test_eta_is_the_time_of_delivery(eta: str | None, deliver_at_ms: int | None) -> None:
    assert to_record(_message(eta=eta), "", "celery").deliver_at_ms == deliver_at_ms


def test_eta_is_due_once_its_time_has_come_by_the_clock_of_the_worker() -> None:
    eta = "2027-01-15T08:00:00+00:00"
    record = _record(to_record(_message(eta=eta), "", "celery"))
    assert from_record(record, _NOW_MS)["headers"] == {"eta": None, "due": eta}
    assert from_record(record, _NOW_MS - 1)["headers"] == {"eta": eta}


@pytest.mark.parametrize(
    ("value", "headers", "why"),
    [
        (None, None, "has no value"),
        (b"{}", (), "has no header `kombu`"),
        (b"{}", (("kombu", None),), "has no header `kombu`"),
        (b"{}", (("kombu", b"{"),), "is broken"),
        (b"{}", (("kombu", b"\xff"),), "is broken"),
        (b"{}", (("kombu", b"[]"),), "is broken"),
        (b"{}", (("kombu", b'{"headers": {}}'),), "is broken"),
        (b"{}", (("kombu", b'{"headers": 7, "properties": {}, "exchange": "", "routing_key": ""}'),), "is broken"),
    ],
)
def test_record_of_another_program_is_no_message(value: bytes | None, headers: Headers | None, why: str) -> None:
    sent = to_record(_message(), "", "celery")
    record = _record(replace(sent, headers=sent.headers if headers is None else headers))
    with pytest.raises(NotAMessageError, match=why):
        from_record(record._replace(value=value), _NOW_MS)
