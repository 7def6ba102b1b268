from datetime import timedelta
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from penstock_kafka.dispatch.messages import MalformedRequestError, entity_of, read_prefix, read_request
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


@pytest.mark.parametrize("version", range(14))
def test_one_answer_serves_each_version_of_metadata(version: int) -> None:
    partition = {"error_code": 0, "partition_index": 1, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
    topic = {"error_code": 3, "name": "orders", "topic_id": UUID(int=7), "partitions": [partition]}
    answer = {"brokers": [{"node_id": 1, "host": "h", "port": 2}], "cluster_id": "c", "topics": [topic]}
    entity = entity_of(load_response_schema(3, version), answer)
    assert entity.brokers[0].host == "h"
    assert entity.topics[0].error_code is ErrorCode.unknown_topic_or_partition
    assert entity.topics[0].partitions[0].replica_nodes == (1,)
    assert hasattr(entity.topics[0], "topic_id") == (version >= 10)


def test_missing_values_are_empty_and_times_are_milliseconds() -> None:
    entity = entity_of(load_response_schema(1, 11), {"throttle_time": 1_500})
    assert entity.throttle_time == timedelta(seconds=1.5)
    assert entity.responses == ()
    assert entity.error_code is ErrorCode.none
