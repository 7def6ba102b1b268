import pytest

from penstock_kafka.dispatch.messages import MalformedRequestError, read_prefix, read_request
from tests.kafka.running_gateway import request_bytes

METADATA_OF_NOTHING = b"\x00\x00\x00\x00"  # an empty list of topics, version 1


def test_request_is_read_with_its_client() -> None:
    frame = request_bytes(3, 1, 7, METADATA_OF_NOTHING)[4:]
    prefix = read_prefix(frame)
    assert prefix == (3, 1, 7)
    client_id, request = read_request(prefix, frame)
    assert client_id == "test"
    assert request.topics == ()


@pytest.mark.parametrize("body", [b"", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x01\x00\x09ab"])
def test_request_is_refused_when_its_bytes_are_not_its_message(body: bytes) -> None:
    frame = request_bytes(3, 1, 7, body)[4:]
    with pytest.raises(MalformedRequestError):
        read_request(read_prefix(frame), frame)


def test_frame_without_a_header_is_refused() -> None:
    with pytest.raises(MalformedRequestError, match="has no header"):
        read_prefix(b"\x00" * 7)
