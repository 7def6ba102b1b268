"""The body of binary produce and fetch, `application/vnd.penstock.batches`.

```
0      n, u32 big-endian, `FRAME_HEADER_BYTES_MAX` at most
4      header, a JSON object in UTF-8, n bytes
4 + n  batches, one after the other, as the header counts them
```
This module owns only the frame. The caller gives the header its meaning (docs/reference/http-api.md).
"""

import json
from collections.abc import Iterable, Mapping

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import FRAME_HEADER_BYTES_MAX
from penstock_core.records.record_batch import BytesLike
from penstock_core.text import parse_json, why_no_json

FRAME_CONTENT_TYPE = "application/vnd.penstock.batches"

_LENGTH_BYTES = 4


def encode(header: Mapping[str, object], bodies: Iterable[BytesLike]) -> bytes:
    """The frame of a header and the batches it counts, joined once.

    Raises INVALID_REQUEST if the header takes more than `FRAME_HEADER_BYTES_MAX` bytes as JSON.
    """
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    _check_length(len(text))
    return b"".join((len(text).to_bytes(_LENGTH_BYTES, "big"), text, *bodies))


def decode(data: BytesLike) -> tuple[dict[str, object], memoryview]:
    """The header, and a view of the bytes after it: nothing but the header is copied.

    Raises INVALID_REQUEST if the frame is truncated, the header too long, not JSON in UTF-8, or not an object.
    """
    view = memoryview(data)
    if len(view) < _LENGTH_BYTES:
        raise _invalid(f"the frame has {len(view)} bytes: it starts with {_LENGTH_BYTES} bytes of header length")
    length = int.from_bytes(view[:_LENGTH_BYTES], "big")
    _check_length(length)
    body_at = _LENGTH_BYTES + length
    if len(view) < body_at:
        raise _invalid(
            f"the frame is truncated: it says its header has {length} bytes, {len(view) - _LENGTH_BYTES} follow"
        )
    return _parse_header(bytes(view[_LENGTH_BYTES:body_at])), view[body_at:]


def _parse_header(text: bytes) -> dict[str, object]:
    try:
        header = parse_json(text.decode())
    except ValueError as error:  # not UTF-8, or not JSON as requests carry it
        raise _invalid(f"the frame's header is not JSON in UTF-8: {why_no_json(error)}") from error
    if not isinstance(header, dict):
        raise _invalid(f"the frame's header is a JSON {type(header).__name__}: send an object")
    return header


def _check_length(length: int) -> None:
    if length > FRAME_HEADER_BYTES_MAX:
        raise _invalid(f"a frame header of {length} bytes: at most {FRAME_HEADER_BYTES_MAX} are allowed")


def _invalid(message: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_REQUEST, message)
