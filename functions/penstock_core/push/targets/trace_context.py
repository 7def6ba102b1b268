"""The trace context of records that go to a target. Pure, and without OpenTelemetry: it is two headers.

A record carries its context in the headers `traceparent` and `tracestate` (https://www.w3.org/TR/trace-context/). A
request that brings several records may carry a context of its own only if all of them have the same one.
"""

import re
from collections.abc import Sequence

from penstock_core.push.batch import PushRecord

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
TRACE_HEADERS = (TRACEPARENT, TRACESTATE)

# Later versions may be longer, but a record must not make a request that its target refuses.
_LATER = rb"(-[!-~]{0,200})?"
_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}" + _LATER)
_TRACESTATE = re.compile(rb"[ -~]{1,512}")  # what W3C asks everybody to take on


def common_context(records: Sequence[PushRecord]) -> dict[str, str]:
    """The HTTP headers of a request with these records: those of their context, if all have the same valid one."""
    contexts = {_context(record) for record in records}
    if len(contexts) != 1:
        return {}
    parent, state = contexts.pop()
    if parent is None or not _TRACEPARENT.fullmatch(parent):
        return {}
    told = {TRACEPARENT: parent.decode()}
    if state is not None and _TRACESTATE.fullmatch(state):
        told[TRACESTATE] = state.decode()
    return told


def context_first(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """The headers, those of the context before all others: a target that takes only some of them gets these."""
    return sorted(headers, key=lambda header: header[0] not in TRACE_HEADERS)


def _context(record: PushRecord) -> tuple[bytes | None, bytes | None]:
    """The last value of each of the two headers, as OpenTelemetry reads them."""
    known = dict(record.record.headers)
    return known.get(TRACEPARENT), known.get(TRACESTATE)
