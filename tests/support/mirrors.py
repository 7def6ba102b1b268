"""A push as another stage sends it."""

from penstock_core.ids import Offset, TopicId, TopicName
from penstock_core.log.topic import Topic
from penstock_core.mirror.push import MirrorPush, PushPart, push_header, source_topic
from penstock_core.records import frame
from penstock_core.records.record_batch import validate
from tests.support.service import batch

MIRROR, MIRRORED = "dr", "copied"


def a_push(*values: str, base_offset: int = 0, topic: str = MIRRORED) -> MirrorPush:
    """One batch of these records, none without values."""
    data = batch(*values) if values else b""
    parts = []
    if values:
        summary = validate(data)
        part = PushPart(
            length=len(data),
            offset_span=summary.offset_span,
            record_count=summary.record_count,
            max_timestamp_ms=summary.max_timestamp_ms,
            appended_ms=2_000,
        )
        parts.append(part)
    source = Topic(name=TopicName(topic), topic_id=TopicId("ab" * 10), partitions=1, created_at_ms=1)
    return MirrorPush(
        mirror=MIRROR,
        source="https://a.example",
        topic=source_topic(source, "", 1),
        partition=0,
        log_id="l1",
        base_offset=Offset(base_offset),
        parts=parts,
        data=data,
    )


def push_frame(push: MirrorPush) -> bytes:
    """The body of the request."""
    return frame.encode(push_header(push), [push.data])
