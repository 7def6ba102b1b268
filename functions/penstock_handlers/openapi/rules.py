"""The rules that the handlers' types do not tell: names, choices, what belongs together. From the core's own limits.

A generated client refuses a wrong request before it sends it, and a fuzzer knows what the service must refuse.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from penstock_core import limits
from penstock_core.acls.rule import ALL, ALLOW, DENY, Kind, Operation
from penstock_core.acls.rule_set import Reason
from penstock_core.errors import ErrorCode
from penstock_core.groups.group import ASSIGNORS, GROUP_BOUNDS
from penstock_core.groups.topic_patterns import PATTERN_CHARACTERS
from penstock_core.ids import NAME_CHARACTERS, TOPIC_ID_BYTES
from penstock_core.log.topic import CLEANUP_POLICIES, MAY_BE_UNLIMITED, TOPIC_BOUNDS, TOPIC_CHOICES, TopicConfig
from penstock_core.push.subscription import SUBSCRIPTION_BOUNDS, SUBSCRIPTION_CHOICES
from penstock_core.push.targets.target import KINDS
from penstock_core.quotas.quota import Subject
from penstock_core.share.acknowledge import AckResult
from penstock_core.share.share_group import CHOICES, SHARE_BOUNDS
from penstock_core.zones.zone_state import ACKS_ALIASES, Acks, ZoneStatus
from penstock_service.push.admin.describe_subscription import LastResult

_NUMBER = "(0|[1-9][0-9]{0,18})"
_PARTITION_NAME = {"pattern": "^(0|[1-9][0-9]{0,2})$"}  # a number as the name of a field
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
# Pydantic and Powertools write these by other names, and bounds as floats, which cannot hold the largest offset.
_KEYWORDS = {"ge": "minimum", "le": "maximum"}
_BOUNDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))

NAME = {"type": "string", "maxLength": limits.NAME_LENGTH_MAX, "pattern": rf"^(?!\.\.?$){NAME_CHARACTERS}$"}
MEMBER_ID = {**NAME, "maxLength": limits.MEMBER_ID_LENGTH_MAX}
TOPIC_PATTERN = {"type": "string", "maxLength": limits.NAME_LENGTH_MAX, "pattern": f"^{PATTERN_CHARACTERS}$"}
FREE_OBJECT = {"type": "object", "additionalProperties": True}  # without this a typed client allows no field at all
TOPIC_ID = {"type": "string", "pattern": f"^[0-9a-f]{{{2 * TOPIC_ID_BYTES}}}$"}
PLACE = {"type": "string", "pattern": f"^(earliest|latest|{_NUMBER})$"}
ACKS = {"type": "string", "enum": [*(each.value for each in Acks), *sorted(ACKS_ALIASES)]}
PARTITION = {"type": "integer", "minimum": 0, "maximum": limits.TOPIC_PARTITIONS_MAX - 1}
PARTITION_COUNT = {"type": "integer", "minimum": 1, "maximum": limits.TOPIC_PARTITIONS_MAX}

SCHEDULED_ID = {"type": "string", "pattern": "^[0-9]{1,4}-[0-9]{1,15}-[0-9a-f]{32}$"}

ACL_PRINCIPAL = {"type": "string", "minLength": 1, "maxLength": limits.ACL_PRINCIPAL_LENGTH_MAX}
ACL_OPERATION = {"type": "string", "enum": [ALL, *(each.value for each in Operation)]}
_KINDS_WITH_NAMES = "|".join(each.value for each in Kind if each is not Kind.SERVICE)
ACL_RESOURCE = {"type": "string", "pattern": rf"^(\*|service|({_KINDS_WITH_NAMES}):({NAME_CHARACTERS}\*?|\*))$"}

_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "topic": NAME,
    "topic_id": TOPIC_ID,
    "group": NAME,
    "name": NAME,
    "transactional_id": NAME,
    "partition": PARTITION,
    "offset": PLACE,
    "timestamp": PLACE,
    "acks": ACKS,
    "filter": {"type": "string", "maxLength": limits.FILTER_BYTES_MAX},
    "timer": SCHEDULED_ID,
    "principal": ACL_PRINCIPAL,
    "resource": ACL_RESOURCE,
    "operation": ACL_OPERATION,
    "permission": {"type": "string", "enum": [ALLOW, DENY]},
}
_REQUEST_FIELDS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("CreateTopic", "name"): NAME,
    ("CreateTopic", "partitions"): PARTITION_COUNT,
    ("AlterTopic", "partitions"): PARTITION_COUNT,
    ("CommitOffset", "topic"): NAME,
    ("ResetOffsets", "topic"): NAME,
    ("ResetShareGroup", "topic"): NAME,
    ("HeartbeatJson", "member_id"): MEMBER_ID,
    ("HeartbeatJson", "instance_id"): MEMBER_ID,
    ("CommitOffsets", "member_id"): MEMBER_ID,
    ("CommitOffsets", "instance_id"): MEMBER_ID,
    ("Record", "key_base64"): {"type": "string", "pattern": _BASE64},
    ("Record", "value_base64"): {"type": "string", "pattern": _BASE64},
    **{(schema, "principal"): ACL_PRINCIPAL for schema in ("AclRuleJson", "CheckAcl")},
    **{(schema, "resource"): ACL_RESOURCE for schema in ("AclRuleJson", "CheckAcl")},
    ("AclRuleJson", "operation"): ACL_OPERATION,
    ("CheckAcl", "operation"): {"type": "string", "enum": [each.value for each in Operation]},
    ("Base64", "base64"): {"type": "string", "pattern": _BASE64},
}
_ANSWER_CHOICES: Mapping[tuple[str, str], Iterable[str]] = {
    ("AcknowledgedRanges", "result"): [each.value for each in AckResult],
    ("AcquiredRecords", "ordering"): CHOICES["ordering"],
    ("AclRule", "permission"): (ALLOW, DENY),
    ("AclRule", "operation"): ACL_OPERATION["enum"],
    ("AclDecision", "operation"): [each.value for each in Operation],
    ("AclDecision", "reason"): [each.value for each in Reason],
    ("QuotaAnswer", "subject"): [each.value for each in Subject],
    ("SubscriptionPartitionAnswer", "last_result"): [each.value for each in LastResult],
    ("ZoneAnswer", "state"): [each.value for each in ZoneStatus],
    **{
        (schema, field): values
        for schema in ("SubscriptionAnswer", "SubscriptionDescriptionAnswer")
        for field, values in {**SUBSCRIPTION_CHOICES, "state": ("active", "paused")}.items()
    },
}
_TOPIC_ANSWERS = ("TopicAnswer", "TopicDescription", "TopicMetadata")
_GROUP_ANSWERS = ("GroupAnswer", "GroupDescriptionAnswer")
_SHARE_GROUP_ANSWERS = ("ShareGroupAnswer", "ShareGroupDescriptionAnswer")
_MAY_BE_NULL = ("dead_letter_topic", "deliveries_max", "filter")


def apply_rules(document: dict[str, Any]) -> None:
    """Change the document in place."""
    _mend(document)
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                _refine(parameter["schema"], _PARAMETERS.get(parameter["name"], {}))
            operation["responses"].get("204", {}).pop("content", None)
    schemas = document["components"]["schemas"]
    for (schema, field), rule in _REQUEST_FIELDS.items():
        _refine(schemas[schema]["properties"][field], rule)
    put = schemas["PutShareGroup"]["properties"]
    _refine(put["topics"], {"type": "array", "items": NAME})
    put["config"] = _share_group_config()
    schemas["ShareResetPlace"]["oneOf"] = _each_required("offset", "timestamp_ms")
    _refine_subscription(schemas)
    for names, rule in (("topics", NAME), ("patterns", TOPIC_PATTERN)):
        _refine(schemas["Subscribed"]["properties"][names]["items"], rule)
    for schema in ("CreateTopic", "AlterTopic"):
        schemas[schema]["properties"]["config"] = _topic_config()
    for schema in ("AlterGroup", "HeartbeatJson"):
        schemas[schema]["properties"]["config"] = _group_config()
    truncated = document["paths"]["/v1/topics/{topic}/truncate"]["post"]["requestBody"]["content"]["application/json"]
    truncated["schema"]["propertyNames"] = _PARTITION_NAME
    _refine(schemas["ResetOffsets"]["properties"]["offsets"], {"type": "object", "propertyNames": _PARTITION_NAME})
    schemas["Record"] |= {
        "oneOf": _each_required("value", "value_base64"),
        "not": {"required": ["key", "key_base64"]},
        "allOf": [
            {"not": {"required": ["deliver_at_ms", "delay_ms"]}},
            {
                "if": {"properties": {"cancellable": {"const": True}}, "required": ["cancellable"]},
                "then": {"anyOf": _each_required("deliver_at_ms", "delay_ms")},
            },
        ],
    }
    schemas["ResetOffsets"]["oneOf"] = _each_required("to", "timestamp_ms", "shift_by", "offsets")
    schemas["Error"]["properties"]["code"]["enum"] = sorted(ErrorCode.__members__)
    _refine_answers(schemas)


def _mend(node: Any) -> None:
    """Give bounds their names in JSON Schema, and whole numbers."""
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _mend(child)
    if not isinstance(node, dict) or node.get("type") != "integer":
        return
    for name, right in _KEYWORDS.items():
        if name in node:
            node[right] = node.pop(name)
    for name in _BOUNDS & node.keys():
        whole = int(node[name])
        node[name] = max(-limits.OFFSET_MAX, min(whole, limits.OFFSET_MAX))


def _refine(schema: dict[str, Any], rule: Mapping[str, Any]) -> None:
    """Add a rule to a schema, or to the part of it that is not null."""
    parts: list[dict[str, Any]] = schema.get("anyOf", [])
    next((each for each in parts if each.get("type") == rule.get("type")), schema).update(rule)


def _refine_answers(schemas: Mapping[str, Any]) -> None:
    """What a typed client may rely on: choices, and settings by their names in place of any object."""
    for (schema, field), values in _ANSWER_CHOICES.items():
        schemas[schema]["properties"][field]["enum"] = list(values)
    for names, config in (
        (_TOPIC_ANSWERS, _topic_config()),
        (_GROUP_ANSWERS, _group_config()),
        (_SHARE_GROUP_ANSWERS, _share_group_config()),
    ):
        for name in names:
            schemas[name]["properties"]["config"] = _all_set(config)
    target = {**schemas["SubscriptionTarget"]["properties"], "https": _https_answer()}
    for name in ("SubscriptionAnswer", "SubscriptionDescriptionAnswer"):
        schemas[name]["properties"]["target"] = {
            "type": "object",
            "properties": {kind: _not_null(schema) for kind, schema in target.items()},
            "oneOf": _each_required(*KINDS),
        }


def _https_answer() -> dict[str, Any]:
    return {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}


def _all_set(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as an answer has them: each has its value. A later release may add some."""
    settings = {
        name: schema if name in _MAY_BE_NULL else _not_null(schema) for name, schema in config["properties"].items()
    }
    return {"type": "object", "properties": settings, "required": sorted(settings)}


def _not_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema without null among its kinds."""
    kinds = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    return kinds[0] if len(kinds) == 1 else {**schema, "anyOf": kinds} if kinds else schema


def _topic_config() -> dict[str, Any]:
    settings: dict[str, Any] = {
        name: _between(bounds, may_be_unlimited=name in MAY_BE_UNLIMITED) for name, bounds in TOPIC_BOUNDS.items()
    }
    for each in fields(TopicConfig):
        if isinstance(each.default, bool):
            settings[each.name] = _or_null({"type": "boolean"})
    for name, choices in (("cleanup_policy", CLEANUP_POLICIES), *TOPIC_CHOICES.items()):
        settings[name] = _or_null({"type": "string", "enum": list(choices)})
    settings["value_schema"] = _or_null({"type": "string", "maxLength": limits.VALUE_SCHEMA_LENGTH_MAX})
    return _config(settings)


def _group_config() -> dict[str, Any]:
    settings = {name: _between(bounds, may_be_unlimited=False) for name, bounds in GROUP_BOUNDS.items()}
    return _config({**settings, "assignor": _or_null({"type": "string", "enum": list(ASSIGNORS)})})


def _share_group_config() -> dict[str, Any]:
    settings = {name: _between(bounds, may_be_unlimited=False) for name, bounds in SHARE_BOUNDS.items()}
    choices = {name: _or_null({"type": "string", "enum": list(values)}) for name, values in CHOICES.items()}
    return _config({**settings, **choices, "dead_letter_topic": _or_null(NAME), "filter": _or_null(FREE_OBJECT)})


def _refine_subscription(schemas: Mapping[str, Any]) -> None:
    put, retry = schemas["PutSubscription"]["properties"], schemas["RetryPolicy"]["properties"]
    for name, bounds in SUBSCRIPTION_BOUNDS.items():
        (retry if name in retry else put)[name] = _between(bounds, may_be_unlimited=name == "age_ms_max")
    _refine(put["topics"], {"type": "array", "items": NAME})
    for properties, name in ((put, "dead_letter_topic"), (schemas["SubscriptionTarget"]["properties"], "topic")):
        _refine(properties[name], NAME)
    endpoint = schemas["HttpsEndpoint"]
    endpoint["properties"]["url"] = {"type": "string", "maxLength": limits.PUSH_URL_LENGTH_MAX}
    endpoint["required"] = ["url"]
    schemas["SubscriptionTarget"]["oneOf"] = _each_required(*KINDS)


def _config(settings: Mapping[str, Any]) -> dict[str, Any]:
    description = "A setting that you leave out stays; null sets it to its default"
    return {"type": "object", "description": description, "properties": settings, "additionalProperties": False}


def _between(bounds: tuple[int, int], *, may_be_unlimited: bool) -> dict[str, Any]:
    number = _or_null({"type": "integer", "minimum": bounds[0], "maximum": bounds[1]})
    if may_be_unlimited:
        number["anyOf"].append({"const": limits.UNLIMITED})
    return number


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _each_required(*names: str) -> list[dict[str, Any]]:
    return [{"required": [name]} for name in names]
