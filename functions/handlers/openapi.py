"""The OpenAPI document of the whole API, made from the handlers: `python -m handlers.openapi > docs/openapi.json`.

The JSON routes describe themselves by their types; the binary ones, which do without pydantic, are described here.
"""

import json
import sys
from typing import Any

from handlers import group_admin, groups, records_fetch, records_produce, topics, zones
from handlers.http import BATCHES

_TITLE = "Penstock"
_VERSION = "1"
_DESCRIPTION = "A serverless message queue. docs/http-api.md is this for people."
_ERROR = {"$ref": "#/components/schemas/Error"}
_UNUSED = {"HTTPValidationError", "ResponseValidationError", "ValidationError"}  # Powertools' own, which never leave
_PARTITION = {"type": "integer", "minimum": 0}
_OFFSET = {"type": "integer", "minimum": 0}


def document() -> dict[str, Any]:
    """OpenAPI 3.1, its keys sorted, so that it changes only when the API does."""
    merged: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": _TITLE, "version": _VERSION, "description": _DESCRIPTION},
        "paths": {},
        "components": {"schemas": {}, "securitySchemes": {"sigv4": _sigv4()}},
        "security": [{"sigv4": []}],
    }
    for module in (topics, records_produce, records_fetch, groups, group_admin, zones):
        part = json.loads(module.app.get_openapi_json_schema(title=_TITLE, version=_VERSION))
        for path, operations in part["paths"].items():
            merged["paths"].setdefault(path, {}).update(operations)
        schemas = part["components"]["schemas"]
        merged["components"]["schemas"] |= {name: schemas[name] for name in schemas if name not in _UNUSED}
    merged["paths"]["/v1/produce"] = {"post": _produce()}
    merged["paths"]["/v1/fetch"] = {"post": _fetch()}
    merged["paths"]["/v1/producers"] = {"post": _begin_transactions()}
    merged["paths"]["/v1/transactions"] = {"post": _transact()}
    for operations in merged["paths"].values():
        for operation in operations.values():
            _describe_errors(operation)
    return merged


def _describe_errors(operation: dict[str, Any]) -> None:
    """Every error has the same form, whatever Powertools says by itself of 422."""
    operation["responses"].pop("422", None)
    operation["responses"]["default"] = {
        "description": "An error: docs/http-api.md lists the codes",
        "content": {"application/json": {"schema": _object(error=_ERROR)}},
    }


def _produce() -> dict[str, Any]:
    result = _object(
        "topic",
        "partition",
        topic={"type": "string"},
        partition=_PARTITION,
        base_offset=_OFFSET,
        next_offset=_OFFSET,
        error=_ERROR,
    )
    return {
        "operationId": "produce",
        "summary": "Produce batches in binary",
        "tags": ["records"],
        "requestBody": {"required": True, "content": {BATCHES: {"schema": {"type": "string", "format": "binary"}}}},
        "responses": {
            "200": {
                "description": "One result per batch entry, in request order",
                "content": {
                    "application/json": {"schema": _object("results", results={"type": "array", "items": result})}
                },
            }
        },
    }


def _begin_transactions() -> dict[str, Any]:
    number = {"type": "integer", "minimum": 0}
    answer = _object("producer_id", "epoch", "transaction", producer_id=number, epoch=number, transaction=number)
    request = _object("transactional_id", transactional_id={"type": "string"})
    return {
        "operationId": "beginTransactions",
        "summary": "Begin an epoch of a transactional producer",
        "tags": ["transactions"],
        "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
        "responses": {
            "200": {"description": "Who it is now", "content": {"application/json": {"schema": answer}}},
        },
    }


def _transact() -> dict[str, Any]:
    placed = _object(
        "topic",
        "partition",
        "base_offset",
        "next_offset",
        topic={"type": "string"},
        partition=_PARTITION,
        base_offset=_OFFSET,
        next_offset=_OFFSET,
    )
    return {
        "operationId": "transact",
        "summary": "Stage a part of a transaction, or commit all of it, in binary",
        "tags": ["transactions"],
        "requestBody": {"required": True, "content": {BATCHES: {"schema": {"type": "string", "format": "binary"}}}},
        "responses": {
            "200": {
                "description": "Where the records of a committed transaction are, by partition; nothing for a stage",
                "content": {"application/json": {"schema": _object(results={"type": "array", "items": placed})}},
            }
        },
    }


def _fetch() -> dict[str, Any]:
    wanted = _object(
        "topic",
        "partition",
        "offset",
        topic={"type": "string"},
        partition=_PARTITION,
        offset=_OFFSET,
        max_bytes={"type": "integer", "minimum": 1},
    )
    request = _object(
        "partitions",
        partitions={"type": "array", "items": wanted},
        max_bytes={"type": "integer", "minimum": 1},
        min_bytes={"type": "integer", "minimum": 0},
        wait_ms={"type": "integer", "minimum": 0},
    )
    return {
        "operationId": "fetch",
        "summary": "Fetch batches in binary",
        "tags": ["records"],
        "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
        "responses": {
            "200": {
                "description": "A frame: its JSON header has one result per partition, in request order",
                "content": {BATCHES: {"schema": {"type": "string", "format": "binary"}}},
            }
        },
    }


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _sigv4() -> dict[str, Any]:
    return {
        "type": "apiKey",
        "name": "Authorization",
        "in": "header",
        "description": "AWS Signature Version 4, service execute-api",
        "x-amazon-apigateway-authtype": "awsSigv4",
    }


if __name__ == "__main__":
    json.dump(document(), sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")
