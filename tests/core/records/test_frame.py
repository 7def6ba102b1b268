import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import FRAME_HEADER_BYTES_MAX
from penstock_core.records.frame import decode, encode

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_encode_writes_golden_bytes() -> None:
    frame = encode({"acks": "all", "n": [1]}, [b"one", bytearray(b"two"), memoryview(b"three")])
    assert frame == b'\x00\x00\x00\x16{"acks":"all","n":[1]}onetwothree'


@given(st.dictionaries(st.text(), json_values, max_size=4), st.lists(st.binary(max_size=20), max_size=4))
def test_decode_returns_what_was_encoded(header: dict[str, object], bodies: list[bytes]) -> None:
    frame = encode(header, bodies)
    for data in (frame, bytearray(frame), memoryview(frame)):
        decoded, body = decode(data)
        assert (decoded, bytes(body)) == (header, b"".join(bodies))


def test_decode_returns_a_view_of_the_body_when_given_a_buffer() -> None:
    frame = bytearray(encode({}, [b"batches"]))
    _, body = decode(frame)
    body[0] = ord("B")
    assert frame.endswith(b"Batches")


def _framed(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the frame has 0 bytes"),
        (b"\0\0\0", "the frame has 3 bytes"),
        (b"\0\0\0\x05{}", "truncated: it says its header has 5 bytes, 2 follow"),
        ((FRAME_HEADER_BYTES_MAX + 1).to_bytes(4, "big"), f"a frame header of {FRAME_HEADER_BYTES_MAX + 1} bytes"),
        (b"\xff\xff\xff\xff", "a frame header of 4294967295 bytes"),
        (_framed(b""), "is not JSON in UTF-8"),
        (_framed(b"{'a': 1}"), "is not JSON in UTF-8"),
        (_framed(b'{"a": "\xff"}'), "is not JSON in UTF-8"),
        (_framed('{"a": 1}'.encode("utf-16")), "is not JSON in UTF-8"),
        (_framed(b'{"a": NaN}'), "NaN is not a JSON number"),
        (_framed(b"[" * 100_000), "is not JSON in UTF-8"),
        (_framed(b'{"a": ' + b"9" * 10_000 + b"}"), "is not JSON in UTF-8"),
        (_framed(b"[1]"), "is a JSON list: send an object"),
        (_framed(b"null"), "send an object"),
    ],
)
def test_decode_says_what_is_wrong_with_a_frame(data: bytes, message: str) -> None:
    with pytest.raises(PenstockError, match=message) as caught:
        decode(data)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_decode_takes_the_longest_header_allowed() -> None:
    text = b'{"a": "' + b"x" * (FRAME_HEADER_BYTES_MAX - 9) + b'"}'
    assert decode(_framed(text))[0] == json.loads(text)


def test_encode_refuses_a_header_that_decode_would_refuse() -> None:
    with pytest.raises(PenstockError, match="a frame header of 262145 bytes") as caught:
        encode({"a": "x" * (FRAME_HEADER_BYTES_MAX - 7)}, [])
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@given(st.one_of(st.binary(max_size=60), st.binary(max_size=60).map(_framed)))
def test_only_penstock_errors_come_out_of_garbage(data: bytes) -> None:
    with contextlib.suppress(PenstockError):
        header, _ = decode(data)
        assert isinstance(header, dict)
