from datetime import timedelta
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from penstock_kafka.dispatch.entities import entity_of


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
