"""What a push tells, and what a head answers it."""

from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.ids import Offset, TopicId, TopicName
from penstock_core.log.index import EMPTY_HEAD, Head
from penstock_core.log.topic import MirrorNote, Topic, TopicConfig
from penstock_core.mirror.push import (
    UNPLANNED,
    MirrorPush,
    PushPart,
    answer_at,
    decide,
    push_header,
    refuse,
    source_topic,
)
from penstock_core.records.producer_state import ProducerSequence, ProducerState
from tests.support.refusals import refused

TOPIC = Topic(
    name=TopicName("orders"),
    topic_id=TopicId("ab" * 10),
    partitions=3,
    created_at_ms=5,
    config=TopicConfig(retention_ms=3_600_000),
    writable=2,
    layout=4,
)
SEQUENCE = ProducerSequence(producer_id=9, epoch=1, first_sequence=4, last_sequence=5)
PART = PushPart(
    length=80, offset_span=2, record_count=2, max_timestamp_ms=7, appended_ms=8, tag_filter=255, sequence=SEQUENCE
)
PUSH = MirrorPush(
    mirror="dr",
    source="https://a.example",
    topic=source_topic(TOPIC, "eu.", 77),
    partition=1,
    log_id="l1",
    base_offset=Offset(10),
    parts=[PART, replace(PART, tag_filter=None, sequence=None)],
    producers={9: ProducerState(epoch=1, last_sequence=5, written_ms=8, checksum=3, owner=b"\1" * 8)},
    data=bytes(160),
)
HEAD = replace(EMPTY_HEAD, next_offset=Offset(10), log_id="l1", mirror="dr")


def test_header_tells_all_that_the_mirror_needs() -> None:
    header = push_header(PUSH)
    assert header["topic"]["name"] == "eu.orders"
    assert (header["topic"]["writable"], header["topic"]["layout"], header["topic"]["settings_ms"]) == (2, 4, 77)
    assert header["parts"][0]["tag_filter"] == "00000000000000ff"
    assert header["parts"][1].keys() == {
        "length", "offset_span", "record_count", "max_timestamp_ms", "appended_ms"
    }  # fmt: skip
    assert header["producers"] == [
        {"id": 9, "epoch": 1, "last_sequence": 5, "written_ms": 8, "checksum": 3, "owner": "01" * 8}
    ]
    assert PUSH.next_offset == 14


def test_settings_leave_the_notes_of_the_mirrored_topic() -> None:
    note = MirrorNote(name="dr", topic_id="ab" * 10)
    mirrored = Topic(
        name=TopicName("eu.orders"), topic_id=TopicId("cd" * 10), partitions=1, created_at_ms=9, mirror=note
    )
    applied = PUSH.topic.applied_to(mirrored, 100)
    assert (applied.topic_id, applied.created_at_ms, applied.mirror) == (mirrored.topic_id, 9, note)
    assert (applied.partitions, applied.writable, applied.layout, applied.config) == (3, 2, 4, TOPIC.config)
    assert not any(applied.is_writable(number) for number in range(3))


@pytest.mark.parametrize(
    ("head", "next_offset"),
    [
        (replace(HEAD, next_offset=Offset(14)), 14),
        (replace(HEAD, next_offset=Offset(3)), 3),
        (replace(HEAD, next_offset=Offset(0), log_id=""), 0),
    ],
    ids=["repeat", "behind", "empty"],
)
def test_push_that_does_not_fit_is_answered_with_the_end(head: Head, next_offset: int) -> None:
    answer = answer_at(head, PUSH)
    assert answer is not None
    assert (answer.next_offset, answer.diverged) == (next_offset, "")


def test_push_that_fits_has_no_answer_yet() -> None:
    assert answer_at(HEAD, PUSH) is None
    for log_id in ("", "l2"):
        assert (
            answer_at(replace(HEAD, next_offset=Offset(0), log_id=log_id), replace(PUSH, base_offset=Offset(0))) is None
        )


@pytest.mark.parametrize("log_id", ["l2", ""], ids=["another", "unnamed"])
def test_another_log_has_diverged(log_id: str) -> None:
    answer = answer_at(replace(HEAD, log_id=log_id), PUSH)
    assert answer is not None
    assert "one of them was restored" in answer.diverged
    assert answer.next_offset == 10


@pytest.mark.parametrize("mirror", ["", "other"])
def test_head_of_no_or_another_mirror_takes_no_push(mirror: str) -> None:
    refused(ErrorCode.MIRROR_ENDED, lambda: answer_at(replace(HEAD, mirror=mirror), PUSH))


MIRROR_NOTE = MirrorNote(name="dr", topic_id="ab" * 10)


@pytest.mark.parametrize(
    ("decided", "given_up", "number", "decision"),
    [(-1, 0, 1, 1), (-1, 0, UNPLANNED, 0), (-1, 3, UNPLANNED, 0), (-1, 3, 4, 4), (2, 0, 3, 2), (0, 0, 3, 0)],
)
def test_first_decision_holds(decided: int, given_up: int, number: int, decision: int) -> None:
    note = MirrorNote(name="dr", topic_id="ab" * 10, decided=decided, refused=given_up)
    assert decide(note, number) == decision


def test_move_that_was_given_up_decides_nothing() -> None:
    note = MirrorNote(name="dr", topic_id="ab" * 10, refused=refuse(MIRROR_NOTE, 3))
    assert note.refused == 3
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: decide(note, 1))
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: decide(note, 3))
    assert refuse(note, 2) == 3


@pytest.mark.parametrize("note", [None, MirrorNote(name="dr", topic_id="ab" * 10, decided=0)])
def test_decided_promotion_is_not_given_up(note: MirrorNote | None) -> None:
    refused(ErrorCode.MIRROR_ENDED, lambda: refuse(note, 9))


@pytest.mark.parametrize(
    ("promoted_at", "log_id", "is_repeat"),
    [
        (PUSH.next_offset, PUSH.log_id, True),
        (PUSH.next_offset - 1, PUSH.log_id, False),
        (PUSH.next_offset, "l9", False),
    ],
)
def test_promoted_head_answers_repeats(promoted_at: int, log_id: str, is_repeat: bool) -> None:
    head = replace(HEAD, mirror="", log_id=log_id, promoted_at=Offset(promoted_at), next_offset=Offset(promoted_at + 5))
    if is_repeat:
        answer = answer_at(head, PUSH)
        assert answer is not None
        assert answer.next_offset == promoted_at
    else:
        refused(ErrorCode.MIRROR_ENDED, lambda: answer_at(head, PUSH))
