"""The OpenAPI document of the whole API, made from the handlers (`make openapi`).

The JSON routes describe themselves by their types; the binary ones, which do without pydantic, are described here.
"""

import json
from typing import Any

from penstock_core import limits
from penstock_core.ids import NONCE_BYTES
from penstock_core.log.topic import MoveState
from penstock_core.routes import ROUTES
from penstock_handlers import groups
from penstock_handlers.edge.http import BATCHES
from penstock_handlers.openapi.rules import FREE_OBJECT, NAME, PARTITION, SCHEDULED_ID, TOPIC_ID, apply_rules
from penstock_handlers.openapi.share_paths import share_paths, share_schemas
from penstock_handlers.routes import (
    acls,
    group_admin,
    quotas,
    records_fetch,
    records_produce,
    schedules,
    share_admin,
    subscriptions,
    topics,
    zones,
)

_JSON_MODULES = (
    topics,
    records_produce,
    records_fetch,
    groups,
    group_admin,
    share_admin,
    schedules,
    subscriptions,
    quotas,
    zones,
    acls,
)
_TITLE = "Penstock"
_VERSION = "1"
_DESCRIPTION = "A serverless message queue. docs/reference/http-api.md is this for people."
_ERROR = {"$ref": "#/components/schemas/Error"}
_REFUSALS = [{"$ref": f"#/components/schemas/{name}"} for name in ("ErrorAnswer", "GatewayAnswer")]
_REFUSAL = {
    "description": "An error: docs/reference/http-api.md lists the codes",
    "headers": {"Retry-After": {"description": "Seconds, of 429 and 503", "schema": {"type": "integer"}}},
    "content": {"application/json": {"schema": {"anyOf": _REFUSALS}}},
}
_UNUSED = {"HTTPValidationError", "ResponseValidationError", "ValidationError"}  # Powertools' own, which never leave
_OFFSET = {"type": "integer", "minimum": 0, "maximum": limits.OFFSET_MAX}


def document() -> dict[str, Any]:
    """OpenAPI 3.1, its keys sorted, so that it changes only when the API does."""
    merged: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": _TITLE, "version": _VERSION, "description": _DESCRIPTION},
        "paths": {},
        "components": {
            "schemas": {},
            "responses": {"Refusal": _REFUSAL},
            "securitySchemes": {"sigv4": _sigv4()},
        },
        "security": [{"sigv4": []}],
        "servers": [_server()],
    }
    for module in _JSON_MODULES:
        part = json.loads(module.app.get_openapi_json_schema(title=_TITLE, version=_VERSION))
        for path, operations in part["paths"].items():
            merged["paths"].setdefault(path, {}).update(operations)
        schemas = part["components"]["schemas"]
        merged["components"]["schemas"] |= {name: schemas[name] for name in schemas if name not in _UNUSED}
    merged["paths"] |= share_paths()
    merged["components"]["schemas"] |= {**share_schemas(), **_ERROR_SCHEMAS}
    merged["paths"] |= {
        "/v1/produce": {"post": _produce()},
        "/v1/fetch": {"post": _fetch()},
        "/v1/mirrors/{name}/append": {"post": _append_push()},
        "/v1/topics/{topic}/move": {"post": _move_topic()},
        "/v1/topics/{topic}/promote": {"post": _promote_topic()},
        "/v1/topics/{topic}/resync": {"post": _resync_topic()},
        "/v1/producers": {"post": _begin_transactions()},
        "/v1/producers/{transactional_id}/release": {"post": _release_producer()},
        "/v1/transactions": {"post": _transact()},
    }
    for route in ROUTES:  # KeyError: a route that nothing describes
        _describe_errors(merged["paths"][route.path][route.method.lower()])
    merged = json.loads(json.dumps(merged))  # no two places share an object: the rules change them in place
    apply_rules(merged)
    return merged


def _describe_errors(operation: dict[str, Any]) -> None:
    """Every error of a function has the same form, whatever Powertools says by itself of 422."""
    operation["responses"].pop("422", None)
    operation["responses"]["default"] = {"$ref": "#/components/responses/Refusal"}


def _produce() -> dict[str, Any]:
    result = _object(
        "topic",
        "partition",
        topic=NAME,
        partition=PARTITION,
        base_offset=_OFFSET,
        next_offset=_OFFSET,
        scheduled_id=SCHEDULED_ID,
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


def _append_push() -> dict[str, Any]:
    texts: dict[str, Any] = {"topic_id": {"type": "string"}, "diverged": {"type": ["string", "null"]}}
    answer = _object("next_offset", *texts, next_offset=_OFFSET, **texts)
    return {
        "operationId": "appendPush",
        "summary": "Append a push of the stage that a topic mirrors",
        "tags": ["mirrors"],
        "parameters": [_parameter("name")],
        "requestBody": {"required": True, "content": {BATCHES: {"schema": {"type": "string", "format": "binary"}}}},
        "responses": {
            "200": {
                "description": "Where the partition's log ends, and why it takes no push of this source",
                "content": {"application/json": {"schema": answer}},
            }
        },
    }


def _move_topic() -> dict[str, Any]:
    number, text, flag = {"type": "integer", "minimum": 1}, {"type": "string"}, {"type": "boolean"}
    partition = _object(
        "partition",
        "log_id",
        "end_offset",
        "mirrored_offset",
        "lag",
        "appended_ms",
        partition=PARTITION,
        log_id=text,
        end_offset=_OFFSET,
        mirrored_offset=_OFFSET,
        lag=_OFFSET,
        appended_ms={"type": ["integer", "null"], "minimum": 0},
    )
    answer = _object(
        "move",
        "state",
        "mirror",
        "url",
        "topic",
        move=number,
        state={"enum": [each.value for each in MoveState]},
        mirror=NAME,
        url=text,
        topic=NAME,
        source={"type": "object"},
        partitions={"type": "array", "items": partition},
        timers={"type": ["integer", "null"], "minimum": 0},
        are_timers_told=flag,
    )
    back: dict[str, Any] = {"return": number, "topic_id": TOPIC_ID, "source": text}
    body = _object(mirror=NAME, dry_run=flag, reopen=number, mirror_lost=flag, **back)
    return {
        "operationId": "moveTopic",
        "summary": "End a topic for its mirror, or open it again",
        "tags": ["mirrors"],
        "parameters": [_parameter("topic")],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": {
                "description": "Where the topic goes on, and how far its mirror is",
                "content": {"application/json": {"schema": answer}},
            }
        },
    }


def _promote_topic() -> dict[str, Any]:
    time_ms = {"type": ["integer", "null"], "minimum": 0}
    partition = _object(
        "partition", "promoted_at", "appended_ms", partition=PARTITION, promoted_at=_OFFSET, appended_ms=time_ms
    )
    offset = _object(
        "partition", "offset", "metadata", partition=PARTITION, offset=_OFFSET, metadata={"type": "string"}
    )
    group = _object("group", "offsets", group=NAME, offsets={"type": "array", "items": offset})
    place = _object("partition", "offset", partition=PARTITION, offset=_OFFSET)
    share_group = _object("group", "offsets", group=NAME, offsets={"type": "array", "items": place})
    return {
        "operationId": "promoteTopic",
        "summary": "Let a mirrored topic take appends",
        "tags": ["mirrors"],
        "parameters": [_parameter("topic")],
        "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}},
        "responses": {
            "200": {
                "description": "Where each partition's log ended, when its newest records came, and the offsets of the "
                "source's groups",
                "content": {
                    "application/json": {
                        "schema": _object(
                            "partitions",
                            "is_promoted",
                            partitions={"type": "array", "items": partition},
                            is_promoted={"type": "boolean"},
                            groups={"type": "array", "items": group},
                            share_groups={"type": "array", "items": share_group},
                            groups_read_ms=time_ms,
                            groups_left_out={"type": "integer", "minimum": 0},
                        )
                    }
                },
            }
        },
    }


def _resync_topic() -> dict[str, Any]:
    return {
        "operationId": "resyncTopic",
        "summary": "Remove a mirrored topic, so that its mirror begins anew",
        "tags": ["mirrors"],
        "parameters": [_parameter("topic")],
        "responses": {
            "200": {
                "description": "The id of the topic that was removed",
                "content": {"application/json": {"schema": _object("topic_id", topic_id=TOPIC_ID)}},
            }
        },
    }


def _parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": NAME}


def _begin_transactions() -> dict[str, Any]:
    number = {"type": "integer", "minimum": 0}
    answer = _object(
        "producer_id",
        "epoch",
        "transaction",
        "last_nonce",
        producer_id=number,
        epoch=number,
        transaction=number,
        last_nonce={"type": "string"},
    )
    request = _request(
        "transactional_id",
        transactional_id=NAME,
        nonce={"type": "string", "pattern": f"^[0-9a-f]{{{2 * NONCE_BYTES}}}$"},
        producer_id=number,
        epoch=number,
    )
    return {
        "operationId": "beginTransactions",
        "summary": "Begin an epoch of a transactional producer",
        "tags": ["transactions"],
        "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
        "responses": {
            "200": {
                "description": "The producer id, its epoch, the number of its next transaction, and the nonce of the "
                "last committed one",
                "content": {"application/json": {"schema": answer}},
            },
        },
    }


def _release_producer() -> dict[str, Any]:
    return {
        "operationId": "releaseProducer",
        "summary": "Let a transactional id belong to the principal that begins with it next",
        "tags": ["transactions"],
        "parameters": [{"name": "transactional_id", "in": "path", "required": True, "schema": NAME}],
        "responses": {
            "200": {"description": "Done", "content": {"application/json": {"schema": _object()}}},
        },
    }


def _transact() -> dict[str, Any]:
    placed = _object(
        "topic",
        "partition",
        "base_offset",
        "next_offset",
        topic=NAME,
        partition=PARTITION,
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
                "description": "The offsets of a committed transaction by partition; an empty object for a stage",
                "content": {"application/json": {"schema": _object(results={"type": "array", "items": placed})}},
            }
        },
    }


def _fetch() -> dict[str, Any]:
    wanted = _request(
        "topic",
        "partition",
        "offset",
        topic=NAME,
        topic_id=TOPIC_ID,
        partition=PARTITION,
        offset=_OFFSET,
        max_bytes={"type": "integer", "minimum": 1, "maximum": limits.FETCH_BYTES_MAX},
        filter=_FILTER,
    )
    request = _request(
        "partitions",
        partitions={"type": "array", "items": wanted, "minItems": 1, "maxItems": limits.REQUEST_PARTITIONS_MAX},
        max_bytes={"type": "integer", "minimum": 1, "maximum": limits.FETCH_BYTES_MAX},
        min_bytes={"type": "integer", "minimum": 0},
        wait_ms={"type": "integer", "minimum": 0, "maximum": limits.FETCH_WAIT_MS_MAX},
        arm={"type": "boolean"},
        filter=_FILTER,
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


_FILTER = {
    "description": "An SNS filter policy over the records' headers, or its JSON text",
    "oneOf": [FREE_OBJECT, {"type": "string"}, {"type": "null"}],
}


def _request(*required: str, **properties: Any) -> dict[str, Any]:
    return {**_object(*required, **properties), "additionalProperties": False}


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


_ERROR_SCHEMAS = {
    "ErrorAnswer": {**_object("error", error=_ERROR), "description": "The answer of a function to what it refuses."},
    "GatewayAnswer": {
        **_object("message", message={"type": "string"}),
        "description": "The answer of API Gateway where no function could: 403, 404, 413, 429, 500, 503 or 504.",
    },
}


def _server() -> dict[str, Any]:
    return {
        "url": "https://{api_id}.execute-api.{region}.amazonaws.com",
        "description": "The stack's output ApiUrl",
        "variables": {"api_id": {"default": "abcdef1234"}, "region": {"default": "us-east-1"}},
    }


def _sigv4() -> dict[str, Any]:
    return {
        "type": "apiKey",
        "name": "Authorization",
        "in": "header",
        "description": "AWS Signature Version 4, service execute-api",
        "x-amazon-apigateway-authtype": "awsSigv4",
    }
