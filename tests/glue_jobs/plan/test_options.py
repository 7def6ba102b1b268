"""The options of a read: the meaning of the Kafka source's names, and the refusals."""

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import MIB
from penstock_spark.plan.options import EARLIEST, LATEST, Bound, Subscription, parse_read_options


def test_options_have_the_kafka_sources_defaults() -> None:
    batch = parse_read_options({"subscribe": "orders"}, is_stream=False)
    stream = parse_read_options({"subscribe": "orders"}, is_stream=True)

    assert (batch.start, batch.end) == (Bound(everywhere=EARLIEST), Bound(everywhere=LATEST))
    assert stream.start == Bound(everywhere=LATEST)
    assert batch.fails_on_data_loss
    assert not batch.includes_headers
    assert (batch.partition_bytes, batch.range_bytes) == (128 * MIB, 8 * MIB)
    assert (batch.min_partitions, batch.max_offsets_per_trigger) == (None, None)


def test_options_are_read_in_any_case_of_letters() -> None:
    found = parse_read_options(
        {"SUBSCRIBE": "a, b,a", "FailOnDataLoss": "FALSE", "includeheaders": "true", "minpartitions": "7"},
        is_stream=False,
    )

    assert found.subscription == Subscription(topics=("a", "b"))
    assert (found.fails_on_data_loss, found.includes_headers, found.min_partitions) == (False, True, 7)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingOffsets": "Earliest"}, Bound(everywhere=EARLIEST)),
        ({"startingOffsets": '{"a": {"0": 23, "1": -2}}'}, Bound(offsets={"a": {0: 23, 1: EARLIEST}})),
        ({"startingTimestamp": "1700", "startingOffsets": "earliest"}, Bound(timestamp_ms=1700)),
        ({"startingOffsetsByTimestamp": '{"a": {"0": 5}}'}, Bound(timestamps_ms={"a": {0: 5}})),
    ],
)
def test_starting_options_go_before_each_other_as_in_the_kafka_source(given: dict[str, str], expected: Bound) -> None:
    assert parse_read_options({"subscribe": "a", **given}, is_stream=False).start == expected


def test_assign_names_partitions() -> None:
    found = parse_read_options({"assign": '{"a": [1, 0, 1], "b": [4]}'}, is_stream=False)

    assert found.subscription == Subscription(assigned={"a": (1, 0), "b": (4,)})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "none of subscribe"),
        ({"subscribe": "a", "assign": "{}"}, "subscribe, assign of"),
        ({"subscribe": " , "}, "name a topic"),
        ({"subscribePattern": "a("}, "no regular expression"),
        ({"assign": "{}"}, "name a topic and its partitions"),
        ({"assign": '{"a": 3}'}, "give a list"),
        ({"assign": "orders"}, "no JSON"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "would find nothing"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "would find nothing"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "-3"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"x": 3}}'}, "partition in startingOffsets='x'"),
        ({"subscribe": "a", "startingOffsets": "[1]"}, "JSON object"),
        ({"subscribe": "a", "startingTimestamp": "noon"}, "'noon'"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions='0'"),
        ({"subscribe": "a", "failOnDataLoss": "perhaps"}, "use one of true, false"),
        ({"subscribe": "a", "rangeBytes": "65G"}, "rangeBytes"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "5"}, "is for streams"),
        (
            {"subscribe": "a", "kafka.bootstrap.servers": "here"},
            "known are archive, assign",
        ),
        ({"subscribe": "a", "strtingoffsets": "latest"}, "did you mean startingOffsets?"),
    ],
)
def test_options_are_refused_with_the_way_out_when_they_are_wrong(given: dict[str, str], message: str) -> None:
    with pytest.raises(PenstockError, match=message) as raised:
        parse_read_options(given, is_stream=False)

    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_ending_options_of_a_stream_are_refused() -> None:
    with pytest.raises(PenstockError, match="endingOffsets is for batch reads"):
        parse_read_options({"subscribe": "a", "endingOffsets": "latest"}, is_stream=True)
