"""Serializers with a schema (docs/how-to/schemas.md): `Producer(value_serializer=AvroSerde(schema, registry=…))`.

They need the extra `penstock[schemas]`, or one of `avro`, `jsonschema` and `protobuf`.
"""

from penstock.schemas.glue import GlueRegistry
from penstock.schemas.registry import ConfluentRegistry, Registry, Schema, SchemaReference
from penstock.schemas.serdes import AvroSerde, JsonSerde, ProtobufSerde
from penstock.schemas.serialization import Deserializer, Serializer

__all__ = [
    "AvroSerde",
    "ConfluentRegistry",
    "Deserializer",
    "GlueRegistry",
    "JsonSerde",
    "ProtobufSerde",
    "Registry",
    "Schema",
    "SchemaReference",
    "Serializer",
]
