"""The document of a led group: it is read back, and other bytes are refused."""

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode
from penstock_core.limits import KAFKA_LED_GROUP_BYTES_MAX
from penstock_kafka.groups.led.led_codec import decoded, encoded
from penstock_kafka.groups.led.led_group import LedGroup, LedMember, Phase
from tests.support.refusals import refused

_TEXTS = st.text(max_size=12)
_COUNTS = st.integers(0, 2**40)
_MEMBERS = st.builds(
    LedMember,
    member_id=_TEXTS,
    client_id=_TEXTS,
    session_ms=_COUNTS,
    rebalance_ms=_COUNTS,
    protocols=st.lists(st.tuples(_TEXTS, st.binary(max_size=40)), max_size=3).map(tuple),
    gateway=_TEXTS,
    beats=_COUNTS,
    has_joined=st.booleans(),
    assignment=st.binary(max_size=40),
)
_GROUPS = st.builds(
    LedGroup,
    protocol_type=_TEXTS,
    phase=st.sampled_from(Phase),
    round=_COUNTS,
    generation=_COUNTS,
    protocol=_TEXTS,
    leader=_TEXTS,
    members=st.lists(_MEMBERS, max_size=3).map(lambda found: {each.member_id: each for each in found}),
)
_ONE = LedGroup(protocol_type="connect")


@given(_GROUPS)
def test_group_is_read_back(group: LedGroup) -> None:
    assert decoded(encoded(group)) == group


def test_group_is_read_from_what_is_stored_today() -> None:
    content = {
        "format": 1,
        "protocol_type": "connect",
        "phase": "stable",
        "round": 3,
        "generation": 1,
        "protocol": "compatible",
        "leader": "a",
        "members": {
            "a": {
                "client_id": "c",
                "session_ms": 10_000,
                "rebalance_ms": 60_000,
                "protocols": [["compatible", "AAE="]],
                "gateway": "g",
                "beats": 7,
                "has_joined": True,
                "assignment": "AgM=",
            }
        },
    }
    group = decoded(zlib.compress(json.dumps(content).encode()))
    assert json.loads(zlib.decompress(encoded(group))) == content
    assert group.members["a"].assignment == b"\x02\x03"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        zlib.compress(b"{}"),
        zlib.compress(b"[]"),
        zlib.compress(b'{"format": 2}'),
        encoded(_ONE)[:-2],
        zlib.compress(b" " * (KAFKA_LED_GROUP_BYTES_MAX + 1) + b"{}"),
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    refused(ErrorCode.UNSUPPORTED_FORMAT, lambda: decoded(data))
