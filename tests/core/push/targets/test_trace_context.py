"""The trace context that a request may carry for its records."""

import pytest

from penstock_core.push.targets.queue_message import common_context, context_first
from tests.support.push_records import StoredRecord, push_record

CONTEXT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = b"00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"


def common(*contexts: tuple[tuple[str, bytes | None], ...]) -> dict[str, str]:
    return common_context(
        [push_record(StoredRecord(offset, headers=headers)) for offset, headers in enumerate(contexts)]
    )


def test_common_context_is_that_of_all_records() -> None:
    headers = (("traceparent", CONTEXT), ("tracestate", b"vendor=1"), ("type", b"order"))
    assert common(headers) == {"traceparent": CONTEXT.decode(), "tracestate": "vendor=1"}
    assert common(headers, headers) == {"traceparent": CONTEXT.decode(), "tracestate": "vendor=1"}


def test_common_context_is_none_when_records_differ() -> None:
    assert common((("traceparent", CONTEXT),), (("traceparent", OTHER),)) == {}
    assert common((("traceparent", CONTEXT),), ()) == {}
    assert common((("traceparent", CONTEXT),), (("traceparent", CONTEXT), ("tracestate", b"a=1"))) == {}


def test_common_context_is_none_when_there_is_none() -> None:
    assert common(()) == {}
    assert common_context([]) == {}


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01",
        b"00-0af7651916cd43dd8448eb211c80319c-" + b"0" * 16 + b"-01",
        b"ff" + CONTEXT[2:],
        CONTEXT + b"\r\nx-evil: 1",
        CONTEXT.upper(),
        b"01" + CONTEXT[2:] + b"-" + b"a" * 201,
        b"\xff",
    ],
)
def test_common_context_is_none_when_the_header_is_no_context(value: bytes | None) -> None:
    assert common((("traceparent", value),)) == {}


@pytest.mark.parametrize("state", [None, b"", b"a=1\r\nx-evil: 1", b"a" * 513, b"\xff"])
def test_common_context_leaves_out_a_state_that_no_header_may_have(state: bytes | None) -> None:
    assert common((("traceparent", CONTEXT), ("tracestate", state))) == {"traceparent": CONTEXT.decode()}


def test_context_comes_before_the_other_headers_which_keep_their_order() -> None:
    headers = [("b", b"1"), ("traceparent", CONTEXT), ("a", None), ("tracestate", b"x=1")]
    assert context_first(headers) == [("traceparent", CONTEXT), ("tracestate", b"x=1"), ("b", b"1"), ("a", None)]
