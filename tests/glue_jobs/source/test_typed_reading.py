"""Reads with typed columns: a batch, a function and a stream have the values as the typed archive has them."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import penstock_spark
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.aws import Storage, format_zones
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_spark.archive.registered_schemas import open_registry
from penstock_spark.decode.decoding import kafka_schema
from penstock_spark.plan.options import parse_read_options
from penstock_spark.source.batch import find_typing, schema_of, typed
from tests.glue_jobs.archive.test_typed_archive import ORDER, VALUES
from tests.glue_jobs.storages import SOME_STORAGE
from tests.support.schema_registry import SchemaRegistry, running_registry
from tests.support.service import entry, new_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

needs_sources = pytest.mark.skipif(find_spec("pyspark.sql.datasource") is None, reason="Spark 3.5 has no data sources")
WITH_N: list[dict[str, Any]] = [{"name": "id", "type": "long"}, {"name": "n", "type": "int", "default": 5}]
SCHEMA = f"json:{json.dumps(ORDER)}"
IDS = 'json:{"properties": {"id": {"type": "integer"}}}'


@pytest.fixture
def given() -> dict[str, str]:
    """Options of a storage that no test calls."""
    storage = SOME_STORAGE
    names = {"topicsTable": storage.topics_table, "logTable": storage.log_table, "groupsTable": storage.groups_table}
    return {"subscribe": "orders", "zones": format_zones(storage.zones), "archive": storage.archive, **names}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as found:
        yield found


def batch_of(*values: bytes | None, offset: int = 0) -> pa.RecordBatch:
    rows = [
        {"value": value, "topic": "orders", "partition": 2, "offset": offset + number}
        for number, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=kafka_schema(with_headers=False))


def read_typed(
    given: dict[str, str], batches: Sequence[pa.RecordBatch], *, storage: Storage = SOME_STORAGE
) -> list[dict[str, Any]]:
    typing = find_typing(given)
    assert typing is not None
    found = typed(iter(batches), typing, storage, fails_fast=given.get("mode") == "FAILFAST")
    return [row for each in found for row in each.to_pylist()]


def append(instance: Instance, topic: str, *values: bytes | None) -> None:
    records = [NewRecord(1_790_000_000_000, None, each) for each in values]
    [result] = produce(instance, [entry(topic, 0, encode(records, Compression.NONE))], Acks.QUORUM)
    assert not isinstance(result, PenstockError)


def test_columns_have_the_values_of_the_schema_and_what_does_not_fit_is_raw(given: dict[str, str]) -> None:
    batch = batch_of(json.dumps(VALUES[0]).encode(), b'{"id": "x", "paid": "1"}', None)

    whole, raw, tombstone = read_typed({**given, "valueSchema": SCHEMA}, [batch])

    assert (whole["id"], whole["paid"], whole["value_day"]) == (1, Decimal("9.50"), date(2026, 11, 21))
    assert whole["at"] == datetime(2026, 11, 21, 9, 0, 0, 250_000, tzinfo=UTC)
    assert (whole["opens"], whole["lines"][1]) == ("08:30:00.500000", {"sku": None, "n": None})
    assert (whole["tags"], whole["_raw"], whole["_raw_reason"]) == ([("x", "1")], None, None)
    assert (raw["id"], raw["_raw"], raw["_raw_reason"]) == (
        None,
        b'{"id": "x", "paid": "1"}',
        'id: str "x", and not a whole number',
    )
    assert {tombstone[name] for name in ("id", "paid", "_raw", "_raw_reason")} == {None}


def test_first_value_that_does_not_fit_is_named_by_its_place_when_the_read_fails_fast(given: dict[str, str]) -> None:
    options = {**given, "valueSchema": IDS, "mode": "FAILFAST"}
    good = batch_of(b'{"id": 1}')

    assert [*read_typed(options, [good])[0]] == [*kafka_schema(with_headers=False).names, "id"]
    with pytest.raises(
        PenstockError, match=r"offset 8 of orders\[2\] does not fit the schema: id: .*PERMISSIVE"
    ) as raised:
        read_typed(options, [good, batch_of(b'{"id": 1}', b'{"id": 1.5}', b"[]", offset=7)])
    assert raised.value.code is ErrorCode.INVALID_RECORD


def test_values_of_each_writer_are_resolved_and_an_outage_names_where_the_records_begin(
    given: dict[str, str], registry: SchemaRegistry
) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    context = SerializationContext("orders", MessageField.VALUE)

    def value(document: dict[str, Any], *fields: dict[str, Any]) -> bytes:
        schema = {"type": "record", "name": "Order", "fields": [*fields]}
        made = AvroSerializer(client, json.dumps(schema))(document, context)
        assert isinstance(made, bytes)
        return made

    old = value({"id": 1}, {"name": "id", "type": "int"})
    new = value({"id": 2, "n": 3}, *WITH_N)
    options = {**given, "valueSchema": f"registry:{registry.url}", "endpointUrl": "http://127.0.0.1:9", "region": "x"}
    local = replace(SOME_STORAGE, region="eu-west-1", endpoint_url="http://127.0.0.1:9")
    open_registry.cache_clear()

    rows = read_typed(options, [batch_of(old, new, old)], storage=local)

    assert [(row["id"], row["n"]) for row in rows] == [(1, 5), (2, 3), (1, 5)]
    assert registry.calls.count("GET /schemas/ids/1") == 1
    by_header: list[tuple[str, bytes]] = []
    made = SerializationContext("orders", MessageField.VALUE, by_header)
    serialize = AvroSerializer(
        client,
        json.dumps({"type": "record", "name": "Order", "fields": WITH_N}),
        conf={"schema.id.serializer": header_schema_id_serializer},
    )
    value_alone = serialize({"id": 4, "n": 5}, made)
    row = {"value": value_alone, "topic": "orders", "partition": 2, "offset": 0}
    with_headers = pa.RecordBatch.from_pylist(
        [{**row, "headers": [{"key": key, "value": value} for key, value in by_header]}],
        schema=kafka_schema(with_headers=True),
    )
    [read] = read_typed(options, [with_headers], storage=local)
    assert (read["id"], read["n"], "headers" in read) == (4, 5, False)
    typing = find_typing(options)
    assert typing is not None
    registry.outage = 503
    open_registry.cache_clear()  # as another process
    with pytest.raises(PenstockError, match=r"values from offset 7 of orders\[2\] on: ") as raised:
        list(typed(iter([batch_of(old, offset=7)]), typing, local, fails_fast=False))
    assert raised.value.code is ErrorCode.STORAGE_UNAVAILABLE


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "FAILFAST"}, "give valueSchema, too"),
        ({"valueSchema": IDS, "mode": "DROPMALFORMED"}, "use one of permissive, failfast"),
        ({"valueSchema": "order.avsc"}, "valueSchema='order.avsc': give json:PLACE"),
        (
            {"valueSchema": "topic", "subscribe": None, "subscribePattern": "o.*"},
            "valueSchema='topic': give json:PLACE",
        ),
        ({"valueSchema": "avro:/nowhere/order.avsc"}, "no text of at most 1000000 bytes"),
        ({"valueSchema": "json:{}"}, "names no field"),
        ({"valueSchema": "registry:https://r", "subscribe": "a,b"}, "give registry:https://r#SUBJECT"),
    ],
)
def test_option_is_refused_with_the_way_out(given: dict[str, str], options: dict[str, str | None], told: str) -> None:
    named = {name: value for name, value in {**given, **options}.items() if value is not None}
    with pytest.raises(PenstockError, match=re.escape(told)):
        _ = parse_read_options(named, is_stream=False), find_typing(named)


def test_spark_reads_typed_columns_by_both_ways_and_as_a_stream(
    spark: "SparkSession", instance: Instance, storage_options: dict[str, str], tmp_path: Path
) -> None:
    new_topic(instance, "orders")
    append(instance, "orders", json.dumps(VALUES[0]).encode(), json.dumps(VALUES[1]).encode(), b"{}", None)
    place = tmp_path / "order.json"
    place.write_text(json.dumps(ORDER))
    options = {"subscribe": "orders", **storage_options}
    wanted = [(1, Decimal("9.50"), "ada", 2), (2, Decimal("0.00"), None, None), (None,) * 4, (None,) * 4]
    columns = ["id", "paid", "by.name as name", "lines[0].n as n"]

    frame = penstock_spark.read(spark, schema=f"json:{place}", includeHeaders=True, **options)
    rows = frame.orderBy("offset").selectExpr(*columns, "_raw_reason").collect()
    assert [tuple(row)[:4] for row in rows] == wanted
    assert [row["_raw_reason"] for row in rows][2:] == ["id: null or missing, and the schema requires it", None]
    assert frame.schema["tags"].dataType.simpleString() == "map<string,string>"

    if find_spec("pyspark.sql.datasource") is None:
        return
    penstock_spark.register(spark)
    loaded = spark.read.format("penstock").options(valueSchema=SCHEMA, **options).load()
    assert [tuple(row) for row in loaded.orderBy("offset").selectExpr(*columns).collect()] == wanted
    found: list[Any] = []
    stream = spark.readStream.format("penstock").options(valueSchema=SCHEMA, startingOffsets="earliest", **options)
    writer = stream.load().writeStream.foreachBatch(lambda batch, _: found.extend(batch.selectExpr(*columns).collect()))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert [tuple(row) for row in found] == wanted


@needs_sources
def test_view_has_the_columns_that_its_topic_names_and_the_records_of_its_first_query(
    spark: "SparkSession", instance: Instance, storage_options: dict[str, str], registry: SchemaRegistry
) -> None:
    document = {"schema": IDS.removeprefix("json:"), "schemaType": "JSON"}
    header = b"\0" + registry.register("orders-value", document).to_bytes(4, "big")
    new_topic(instance, "orders", value_schema=f"registry:{registry.url}")
    append(instance, "orders", header + b'{"id": 7}')
    options = {"subscribe": "orders", "valueSchema": "topic", "mode": "FAILFAST", **storage_options}
    penstock_spark.register(spark)
    told = ", ".join(f"{name} '{value}'" for name, value in options.items())

    def ids(*, is_made_anew: bool) -> list[int]:
        if is_made_anew:
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW penstock USING penstock OPTIONS ({told})")
        return [row["id"] for row in spark.sql("SELECT id FROM penstock WHERE id > 5 ORDER BY offset").collect()]

    assert ids(is_made_anew=True) == [7]
    append(instance, "orders", header + b'{"id": 8}')
    assert ids(is_made_anew=False) == [7]  # Spark keeps the plan of a source in Python with the view
    assert ids(is_made_anew=True) == [7, 8]
    append(instance, "orders", header + b'{"id": "nine"}')
    with pytest.raises(Exception, match=r'offset 2 of orders\[0\] does not fit the schema: id: str "nine"'):
        ids(is_made_anew=True)


def test_columns_of_the_topic_keep_their_names_and_the_schemas_ones_get_others(given: dict[str, str]) -> None:
    typing = find_typing({**given, "valueSchema": 'json:{"properties": {"offset": {}, "day": {"type": "string"}}}'})

    names = schema_of(given, typing).names
    assert names[7:] == ["value_offset", "value_day", "_raw", "_raw_reason"]
