"""A copy from one stage to another: `penstock kafka` is a source as any other."""

import pytest
from click.testing import CliRunner

from penstock import TopicPartition
from penstock.testing import MemoryPenstock
from penstock_import.command import import_
from tests.importer.copies import held
from tests.kafka.running_gateway import running_gateway


@pytest.mark.slow
def test_import_copies_a_topic_and_a_group_from_a_gateway() -> None:
    with MemoryPenstock() as source, MemoryPenstock() as target:
        source.create_topic("orders", partitions=3, config={"cleanup_policy": "compact"})
        with source.producer() as producer:
            for number in range(300):
                value = None if number % 7 == 0 else b"%d" % number
                producer.send("orders", value, key=b"k%d" % number, headers=[("a", None), ("a", b"")])
        source.admin().commit_group_offsets("billing", {TopicPartition("orders", 1): 40})
        with running_gateway(source) as gateway:
            arguments = [f"kafka://{gateway.address}/orders", "--create", "--group", "billing"]
            result = CliRunner().invoke(import_, arguments, obj=target.transport)
        assert result.exit_code == 0, result.output
        assert held(target) == held(source)
        assert [each.headers for each in target.records("orders")] == [
            each.headers for each in source.records("orders")
        ]
        assert target.admin().describe_topic("orders").topic.config["cleanup_policy"] == "compact"
        assert [(each.partition, each.offset) for each in target.admin().group_offsets("billing")] == [(1, 40)]
