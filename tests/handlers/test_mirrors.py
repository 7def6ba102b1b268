"""Pushes over HTTP: what a frame tells arrives, bad frames are refused, and a mirrored topic is shown as one."""

from dataclasses import replace
from typing import Any

import pytest

from penstock_core.acls.rule import parse_rule
from penstock_core.ids import Offset
from penstock_core.limits import MIRROR_PUSH_PRODUCERS, MIRROR_PUSH_REFS
from penstock_core.mirror.group_offsets import OffsetsTelling
from penstock_core.mirror.push import MirrorPush, push_header
from penstock_core.records import frame
from penstock_core.records.producer_state import ProducerSequence, ProducerState
from penstock_handlers.router import LOCAL_PRINCIPAL
from penstock_service.acls.change_acls import change_acls
from tests.handlers.service import Service
from tests.support.mirrors import MIRRORED, a_push, push_frame
from tests.support.service import head_of, key_of

APPEND = "/v1/mirrors/dr/append"


@pytest.fixture
def service() -> Service:
    return Service()


def test_push_arrives_as_it_was_made(service: Service) -> None:
    push = a_push("a", "b")
    sequence = ProducerSequence(producer_id=2**62, epoch=3, first_sequence=4, last_sequence=5)
    [part] = push.parts
    state = ProducerState(epoch=3, last_sequence=5, written_ms=6, checksum=2**32 - 1, owner=b"\1" * 8)
    push = replace(push, parts=[replace(part, sequence=sequence, tag_filter=2**63)], producers={2**62: state})
    answer = service.call("POST", APPEND, push_frame(push))
    told = {"next_offset": 2, "topic_id": key_of(service.instance, MIRRORED).topic_id, "diverged": None}
    assert (answer.status, answer.json) == (200, told)
    head = head_of(service.instance, MIRRORED)
    [ref] = head.tail
    assert (ref.sequence, ref.tag_filter, ref.appended_ms) == (sequence, 2**63, 2_000)
    assert dict(head.producers.items()) == {2**62: state}
    assert service.call("POST", APPEND, push_frame(push)).json == told


def _telling(replaces: int, text: bytes) -> MirrorPush:
    return replace(a_push(), offsets=OffsetsTelling(replaces=replaces, read_ms=9, left_out=2), data=text)


def test_offsets_of_groups_come_back_with_the_promotion(service: Service) -> None:
    service.call("POST", APPEND, push_frame(a_push("a", "b")))
    none = service.call("POST", APPEND, push_frame(_telling(0, b"[]"))).json
    assert not none["is_offsets_kept"], "it does not know the mirror's numbers"
    text, first = b'[["g",[[0,1,"m"]]],["h",[[0,5]]],["s",[[0,7]],"share"]]', none["offsets_number"] + 1
    told = service.call("POST", APPEND, push_frame(_telling(first - 1, text))).json
    assert (told["offsets_number"], told["is_offsets_kept"]) == (first, True)
    again = service.call("POST", APPEND, push_frame(_telling(first - 1, b"[]"))).json
    assert (again["offsets_number"], again["is_offsets_kept"]) == (first, False)
    promoted = service.call("POST", f"/v1/topics/{MIRRORED}/promote", b"").json
    assert promoted["groups"] == [
        {"group": "g", "offsets": [{"partition": 0, "offset": 1, "metadata": "m"}]},
        {"group": "h", "offsets": [{"partition": 0, "offset": 2, "metadata": ""}]},
    ]
    assert promoted["share_groups"] == [{"group": "s", "offsets": [{"partition": 0, "offset": 2}]}]
    assert (promoted["groups_read_ms"], promoted["groups_left_out"]) == (9, 2)


def test_groups_that_the_caller_may_not_see_are_not_told(service: Service) -> None:
    service.call("POST", APPEND, push_frame(a_push("a")))
    number = service.call("POST", APPEND, push_frame(_telling(0, b"[]"))).json["offsets_number"]
    service.call(
        "POST", APPEND, push_frame(_telling(number, b'[["g",[[0,1]]],["h",[[0,1]]],["g",[],"share"],["h",[],"share"]]'))
    )
    denied = [parse_rule(LOCAL_PRINCIPAL, "describe", name, "deny") for name in ("group:g", "share_group:h")]
    change_acls(service.instance, denied, [])
    told = service.call("POST", f"/v1/topics/{MIRRORED}/promote", b"").json
    assert [each["group"] for each in told["groups"]] == ["h"]
    assert [each["group"] for each in told["share_groups"]] == ["g"]


@pytest.mark.parametrize(
    "change",
    [{"offsets": {}}, {"offsets": {"replaces": 0, "read_ms": 0, "left_out": -1}}, {"parts": [{}]}, {"offsets": None}],
)
def test_bad_telling_is_refused(service: Service, change: dict[str, Any]) -> None:
    push = _telling(0, b"[]")
    body = frame.encode({**push_header(push), **change}, [push.data])
    assert service.call("POST", APPEND, body).status == 400


def test_another_log_is_told(service: Service) -> None:
    service.call("POST", APPEND, push_frame(a_push("a")))
    answer = service.call("POST", APPEND, push_frame(replace(a_push("b", base_offset=1), log_id="l2")))
    assert answer.status == 200
    assert "holds log l1 up to 1" in answer.json["diverged"]


def test_mirrored_topic_shows_its_source_until_it_is_promoted(service: Service) -> None:
    service.call("POST", APPEND, push_frame(a_push("a")))
    path = f"/v1/topics/{MIRRORED}"
    told = service.call("GET", path).json
    assert told["mirror"] == {"name": "dr", "topic_id": "ab" * 10, "source": "https://a.example"}
    assert [each["state"] for each in told["offsets"]] == ["draining"]
    refused = service.call("POST", f"{path}/records", {"records": [{"value": "x"}]})
    assert "MIRRORED" in refused.body.decode()
    assert service.call("POST", f"{path}/promote", {"a": 1}).status == 400
    promoted = service.call("POST", f"{path}/promote", b"")
    assert promoted.json == {
        "partitions": [{"partition": 0, "promoted_at": 1, "appended_ms": 2_000}],
        "is_promoted": True,
        "groups": [],
        "share_groups": [],
        "groups_read_ms": None,
        "groups_left_out": 0,
    }
    assert "mirror" not in service.call("GET", path).json
    assert service.call("POST", f"{path}/resync", b"").status == 400


BAD: dict[str, Any] = {
    "unknown field": {"more": 1},
    "no topic": {"topic": None},
    "partition": {"partition": -1},
    "log_id": {"log_id": "x" * 300},
    "no log_id": {"log_id": ""},
    "base_offset": {"base_offset": 2**63},
    "source": {"source": "x" * 3_000},
    "parts": {"parts": [{}]},
    "many parts": {"parts": [{}] * (MIRROR_PUSH_REFS + 1)},
    "many producers": {"producers": [{}] * (MIRROR_PUSH_PRODUCERS + 1)},
    "producer": {"producers": [{"id": -1}]},
    "owner": {"producers": [{
        "id": 1, "epoch": 0, "last_sequence": 0, "written_ms": 0, "checksum": 0, "owner": "zz"
    }]},
}  # fmt: skip


@pytest.mark.parametrize("change", BAD.values(), ids=BAD)
def test_bad_frame_is_refused_and_changes_nothing(service: Service, change: dict[str, Any]) -> None:
    push = a_push("a")
    body = frame.encode({**push_header(push), **change}, [push.data])
    answer = service.call("POST", APPEND, body)
    assert (answer.status, answer.json["error"]["code"]) == (400, "INVALID_REQUEST"), answer.body
    assert service.instance.stores.topics.list() == []


@pytest.mark.parametrize(
    "change",
    [
        {"name": "bad name"},
        {"partitions": 0},
        *({"generations": starts} for starts in ([], [1], [0, 5], [0, 0], ["0"])),
        {"config": {"nonsense": 1}},
        {"layout": -1},
        {"heads": 0},
        {"writable": 0},
    ],
)
def test_bad_topic_is_refused(service: Service, change: dict[str, Any]) -> None:
    push = a_push("a")
    header = push_header(push)
    body = frame.encode({**header, "topic": {**header["topic"], **change}}, [push.data])
    answer = service.call("POST", APPEND, body)
    assert answer.status == 400, answer.body
    assert service.instance.stores.topics.list() == []


@pytest.mark.parametrize("ends", [[], [0], [0, 1, 2]])
def test_planned_promotion_without_an_end_of_each_partition_is_refused(service: Service, ends: list[int]) -> None:
    push = replace(a_push("a"), topic=replace(a_push("a").topic, partitions=2))
    service.call("POST", APPEND, push_frame(push))
    body = {
        "move": 1,
        "mirror": push.mirror,
        "topic_id": key_of(service.instance, MIRRORED).topic_id,
        "source": push_header(push)["topic"],
        "partitions": [{"partition": each, "log_id": "l1", "end_offset": 0} for each in ends],
    }
    answer = service.call("POST", f"/v1/topics/{MIRRORED}/promote", body)
    assert (answer.status, answer.json["error"]["code"]) == (400, "INVALID_REQUEST"), answer.body
    assert head_of(service.instance, MIRRORED, 1).mirror == push.mirror


def test_push_behind_the_end_tells_where_the_log_ends(service: Service) -> None:
    push = replace(a_push("a"), base_offset=Offset(5))
    assert service.call("POST", APPEND, push_frame(push)).json["next_offset"] == 0
