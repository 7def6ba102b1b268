"""The routes of share consumers in the OpenAPI document: their function checks requests by hand."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from penstock_core import limits
from penstock_core.share.acknowledge import AckType
from penstock_handlers.edge.http import BATCHES
from penstock_handlers.edge.models.share_answers import AcknowledgedAnswer, AcquiredRecords, RedriveAnswer
from penstock_handlers.openapi.rules import FREE_OBJECT, NAME, PARTITION

_ANSWERS: Mapping[str, Any] = {
    "AcquiredRecords": AcquiredRecords,
    "AcknowledgedAnswer": AcknowledgedAnswer,
    "RedriveAnswer": RedriveAnswer,
}
_PATH = "/v1/share-groups/{group}"
_REF = "#/components/schemas/{model}"
_OFFSET = {"type": "integer", "minimum": 0, "maximum": limits.OFFSET_MAX}
_LOCK_MS = {"type": "integer", "minimum": limits.SHARE_LOCK_MS_MIN, "maximum": limits.SHARE_LOCK_MS_MAX}
_NONCE = {
    "type": "string",
    "pattern": f"^[A-Za-z0-9_-]{{{limits.SHARE_NONCE_LENGTH_MIN},{limits.SHARE_NONCE_LENGTH_MAX}}}$",
}


def share_paths() -> dict[str, Any]:
    """The operations by path."""
    return {
        f"{_PATH}/records": {
            "post": _operation(
                "acquireRecords",
                "Acquire records of a share group, in JSON",
                "AcquireRecords",
                _json("AcquiredRecords"),
            )
        },
        f"{_PATH}/acquire": {
            "post": _operation(
                "acquire",
                "Acquire batches of a share group, in binary",
                "AcquireRecords",
                {BATCHES: {"schema": {"type": "string", "format": "binary"}}},
            )
        },
        f"{_PATH}/acknowledge": {
            "post": _operation(
                "acknowledge", "Acknowledge records of a share group", "AcknowledgeRecords", _json("AcknowledgedAnswer")
            )
        },
        "/v1/topics/{topic}/redrive": {
            "post": _operation("redrive", "Move dead letters back", "Redrive", _json("RedriveAnswer"), "topic")
        },
    }


def share_schemas() -> dict[str, Any]:
    """The schemas that the operations name."""
    found: dict[str, Any] = {
        "Acknowledgement": _acknowledgement(),
        "AcknowledgeRecords": _object("acknowledge", acknowledge=_acknowledgements(minimum=1)),
        "AcquireRecords": _acquire(),
        "Redrive": _object(
            to=_or_null(NAME),
            filter=_or_null(FREE_OBJECT),
            records_max=_or_null({"type": "integer", "minimum": 1, "maximum": limits.REDRIVE_RECORDS_MAX}),
            cursor=_or_null({"type": "string"}),
            record=_or_null(_object("partition", "offset", partition=PARTITION, offset=_OFFSET)),
            drop={"type": "boolean"},
        ),
    }
    for name, form in _ANSWERS.items():
        schema = TypeAdapter(form).json_schema(ref_template=_REF, mode="serialization")
        found |= schema.pop("$defs", {})
        found[name] = schema
    return found


def _operation(
    operation_id: str, summary: str, request: str, answer: Mapping[str, Any], parameter: str = "group"
) -> dict[str, Any]:
    return {
        "operationId": operation_id,
        "summary": summary,
        "tags": ["share groups"],
        "parameters": [{"name": parameter, "in": "path", "required": True, "schema": NAME}],
        "requestBody": {"required": True, "content": _json(request)},
        "responses": {"200": {"description": "Successful Response", "content": answer}},
    }


def _acquire() -> dict[str, Any]:
    return _object(
        consumer_id={"type": "string", "maxLength": limits.CLIENT_ID_LENGTH_MAX},
        nonce=_or_null(_NONCE),
        repeat={"type": "boolean"},
        max_records={"type": "integer", "minimum": 1, "maximum": limits.SHARE_RECORDS_MAX},
        max_bytes={"type": "integer", "minimum": 1, "maximum": limits.FETCH_BYTES_MAX},
        lock_ms=_or_null(_LOCK_MS),
        wait_ms={"type": "integer", "minimum": 0, "maximum": limits.FETCH_WAIT_MS_MAX},
        arm={"type": "boolean"},
        topics=_or_null({"type": "array", "items": NAME, "minItems": 1, "maxItems": limits.SHARE_TOPICS_MAX}),
        acknowledge=_acknowledgements(minimum=0),
    )


def _acknowledgements(minimum: int) -> dict[str, Any]:
    return {
        "type": "array",
        "items": {"$ref": _REF.format(model="Acknowledgement")},
        "minItems": minimum,
        "maxItems": limits.SHARE_ACKNOWLEDGEMENTS_MAX,
    }


def _acknowledgement() -> dict[str, Any]:
    span = {"type": "array", "prefixItems": [_OFFSET, _OFFSET], "minItems": 2, "maxItems": 2}
    return _object(
        "topic",
        "partition",
        "lock_id",
        "type",
        topic=NAME,
        partition=PARTITION,
        lock_id={"type": "string"},
        offsets=_or_null({"type": "array", "items": span, "minItems": 1, "maxItems": limits.SHARE_RANGES_MAX}),
        type={"type": "string", "enum": [each.value for each in AckType]},
        delay_ms=_or_null({"type": "integer", "minimum": 0, "maximum": limits.SHARE_DELAY_MS_MAX}),
        uncounted={"type": "boolean"},
        reason={"type": "string", "maxLength": limits.SHARE_REASON_BYTES_MAX},
        lock_ms=_or_null(_LOCK_MS),
    )


def _json(model: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(model=model)}}}


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}
