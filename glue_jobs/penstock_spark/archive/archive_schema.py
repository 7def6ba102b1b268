"""The columns of archived topics: those of the data source, each with its field id for Iceberg."""

import pyarrow as pa

from penstock_spark.decode.decoding import kafka_schema

TIMESTAMP_ID = 6
_ELEMENT_ID, _HEADER_KEY_ID, _HEADER_VALUE_ID = 9, 10, 11


def _field(field: pa.Field, field_id: int) -> pa.Field:
    return field.with_metadata({"PARQUET:field_id": str(field_id)})


def _with_ids(field: pa.Field, field_id: int) -> pa.Field:
    if field.name != "headers":
        return _field(field, field_id)
    key, value = field.type.value_type
    header = pa.struct([_field(key, _HEADER_KEY_ID), _field(value, _HEADER_VALUE_ID)])
    return _field(pa.field("headers", pa.list_(_field(pa.field("element", header), _ELEMENT_ID))), field_id)


# An id must never change: years of files refer to it. A new column gets the next id.
FILE_SCHEMA = pa.schema(
    [_with_ids(field, number) for number, field in enumerate(kafka_schema(with_headers=True), start=1)]
)
ARCHIVE_SCHEMA = kafka_schema(with_headers=True)
