from collections.abc import Iterator

import click
import pytest

from penstock.cli.options.start import START, Start
from penstock.consumer.consumer import Consumer
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock

PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


@pytest.fixture
def consumer(service: MemoryPenstock) -> Iterator[Consumer]:
    """Of two partitions: the first holds the offsets 2 to 4, at the times 200 to 400; the second is empty."""
    service.create_topic("orders", partitions=2)
    with service.producer() as producer:
        for offset in range(5):
            producer.send("orders", b"x", partition=0, timestamp_ms=offset * 100)
    service.admin().truncate("orders", {0: 2})
    with service.consumer() as consumer:
        yield consumer


@pytest.mark.parametrize(
    ("start", "offsets"),
    [
        (Start(end="earliest"), [2, 0]),
        (Start(end="latest"), [5, 0]),
        (Start(offset=7), [7, 7]),
        (Start(timestamp_ms=250), [3, 0]),
        (Start(timestamp_ms=401), [5, 0]),
        (Start(last=1), [4, 0]),
        (Start(last=9), [2, 0]),
    ],
)
def test_start_is_an_offset_of_each_partition(consumer: Consumer, start: Start, offsets: list[int]) -> None:
    assert start.offsets(consumer, PARTITIONS) == dict(zip(PARTITIONS, offsets, strict=True))


@pytest.mark.parametrize(
    ("start", "reset"),
    [
        (Start(offset=7), "none"),
        (Start(end="latest"), "latest"),
        (Start(end="earliest"), "earliest"),
        (Start(timestamp_ms=250), "earliest"),
        (Start(last=1), "earliest"),
    ],
)
def test_only_a_given_offset_must_exist(start: Start, reset: str) -> None:
    assert start.offset_reset == reset


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start(end="earliest")),
        ("latest", Start(end="latest")),
        ("12", Start(offset=12)),
        ("1970-01-01T00:00:01Z", Start(timestamp_ms=1_000)),
    ],
)
def test_text_is_an_end_an_offset_or_a_time(text: str, start: Start) -> None:
    assert START.convert(text, None, None) == start
    assert START.convert(start, None, None) == start


@pytest.mark.parametrize("text", ["", "first", "-1", "٣", "1.5"])
def test_other_text_is_no_start(text: str) -> None:
    with pytest.raises(click.BadParameter, match="give earliest, latest, an offset, an ISO 8601 time"):
        START.convert(text, None, None)
