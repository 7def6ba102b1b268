"""A topic's records as Spark's tasks read them, without Spark."""

from typing import Any

import pytest

from penstock_service.instance.instance import Instance
from penstock_spark.decode.decoding import decode, kafka_schema
from penstock_spark.decode.reading import read_slices
from penstock_spark.plan.options import ReadOptions, parse_read_options
from penstock_spark.plan.planning import clip_to_log, plan_slices
from penstock_spark.plan.slices import Slice
from penstock_spark.plan.snapshot import choose_offsets
from tests.support.service import (
    patient_instance,
    send,
)

Plan = list[tuple[Slice, ...]]


@pytest.fixture
def instance() -> Instance:
    return patient_instance()


def options(**given: Any) -> ReadOptions:
    return parse_read_options(
        {"subscribe": "orders", **{name: str(value) for name, value in given.items()}}, is_stream=False
    )


def plan(instance: Instance, read_options: ReadOptions | None = None) -> Plan:
    read_options = read_options or options()
    ranges = clip_to_log(choose_offsets(instance, read_options), fails_on_data_loss=read_options.fails_on_data_loss)
    return plan_slices(
        instance,
        ranges,
        partition_bytes=read_options.partition_bytes,
        min_partitions=read_options.min_partitions,
        fails_on_data_loss=read_options.fails_on_data_loss,
    )


def read(instance: Instance, planned: Plan, read_options: ReadOptions | None = None) -> list[tuple[int, int, str]]:
    """Partition, offset and value of every record, task by task."""
    read_options = read_options or options()
    schema = kafka_schema(with_headers=False)
    return [
        (row["partition"], row["offset"], row["value"].decode())
        for slices in planned
        for records in decode(
            read_slices(
                instance,
                slices,
                range_bytes=read_options.range_bytes,
                fails_on_data_loss=read_options.fails_on_data_loss,
                shares_ranges=True,
            ),
            schema,
        )
        for row in records.to_pylist()
    ]


def fill(instance: Instance, count: int, partition: int = 0, *, start: int = 0) -> list[tuple[int, int, str]]:
    """Append one record at a time, over pages and tail."""
    for number in range(start, start + count):
        send(instance, "orders", f"v{number}", partition=partition)
    return [(partition, number, f"v{number}") for number in range(start, start + count)]
