"""A consumer reads what a model says from a log that is merged, cleaned, truncated and expired by chance."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.consumer.fetch_buffer import FetchBuffer, FetchSettings
from penstock.model import TopicPartition
from penstock.retry import RetryPolicy
from penstock_core.compaction.merging import CompactionSettings
from tests.support.compacted_log import STEPS, CompactedLog, Found, Step
from tests.support.service import ask

SMALL = CompactionSettings(age_ms_min=0, refs_min=2, ref_bytes=2_000, segment_bytes=3_000, dirty_share_min=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
@given(steps=st.lists(STEPS, min_size=3, max_size=12), data=st.data())
@settings(max_examples=25)
def test_consumer_reads_from_any_offset_what_a_model_says(policy: str, steps: list[Step], data: st.DataObject) -> None:
    """The model is every record appended, at its offset. Without cleaning, all from the log start on are there; with it
    the newest of each key but for old tombstones, all without a key, and none that a pass has found superseded."""
    log = CompactedLog(policy=policy, settings=SMALL)
    for step in steps:
        log.take(step)
        if step[0] == "compact":
            start = data.draw(st.integers(log.head.log_start_offset, len(log.appended)), label="offset")
            log.check(consume(log, start), start, len(log.appended))
    log.check_from_every_offset()


def consume(log: CompactedLog, offset: int) -> list[Found]:
    """As the SDK's consumer does, from its own buffer."""
    buffer = FetchBuffer(
        FetchSettings(
            fetch_max_bytes=300,
            fetch_wait_ms=0,
            buffer_bytes=10_000_000,
            max_in_flight=1,
            offset_reset="none",
            retry=RetryPolicy(backoff_ms=1, backoff_max_ms=1),
        )
    )
    partition = TopicPartition(log.topic, 0)
    buffer.assign([partition])
    buffer.seek(partition, offset)
    found: list[Found] = []
    while True:
        request = buffer.next_request(0)
        assert request is not None
        [wanted] = request.body["partitions"]
        fetched = ask(log.instance, log.topic, wanted["offset"], max_bytes=300)
        answer = {
            "log_start_offset": fetched.log_start_offset,
            "high_watermark": fetched.high_watermark,
            "next_offset": fetched.next_offset,
            "length": len(fetched.data),
        }
        buffer.accept(request, [answer], memoryview(fetched.data), 0, 0.5)
        found += [
            (each.offset, each.key, each.value, each.timestamp_ms, tuple(each.headers)) for each in buffer.take(1_000)
        ]
        if fetched.next_offset == fetched.high_watermark:
            assert buffer.positions() == {partition: fetched.high_watermark}
            return found
