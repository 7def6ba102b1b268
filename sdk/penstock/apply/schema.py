"""The JSON Schema of the file, made of the core's settings and bounds: for editors, and for the reference.

`python -m penstock.apply.schema > docs/reference/stage.schema.json` writes it. The schema knows names, types and bounds
of single values. What depends on two values, only `penstock apply` tells.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from penstock.api.schedule_calls import RECORD_FIELDS
from penstock.apply.settings import FOREVER, SCHEDULE_DEFAULTS
from penstock.apply.stage_file import RETRY
from penstock.model.fields import SIZE
from penstock.model.times import DURATION
from penstock_core.acls.rule import ALL, ALLOW, DENY, Operation
from penstock_core.groups.group import ASSIGNORS, GROUP_BOUNDS, GroupConfig
from penstock_core.limits import (
    QUOTA_COUNT_MAX,
    QUOTA_RATE_MAX,
    QUOTA_STORED_BYTES_MAX,
    SHARE_FAIR_BY_LENGTH_MAX,
    TOPIC_PARTITIONS_MAX,
    UNLIMITED,
    VALUE_SCHEMA_LENGTH_MAX,
)
from penstock_core.log.topic import CLEANUP_POLICIES, MAY_BE_UNLIMITED, TOPIC_BOUNDS, TOPIC_CHOICES, TopicConfig
from penstock_core.push.subscription import ORDERED, PARALLEL, STARTS, SUBSCRIPTION_BOUNDS, SubscriptionConfig
from penstock_core.push.targets.target import KINDS, StageTarget
from penstock_core.quotas.quota import STORED_BYTES, Count, Rate
from penstock_core.share.share_group import CHOICES, SHARE_BOUNDS, ShareGroupConfig

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_TEXTS: Schema = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
_DURATION = f"^({DURATION}|{FOREVER})$"
_SIZE = f"^{SIZE}$"
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "cleanup_policy": CLEANUP_POLICIES,
    **TOPIC_CHOICES,
    "assignor": ASSIGNORS,
    "mode": (ORDERED, PARALLEL),
    "start": STARTS,
    "ordering": CHOICES["ordering"],
    "topic_order": CHOICES["topic_order"],
    "sharing": CHOICES["sharing"],
}
_OBJECTS = ("filter",)
_FREE_TEXTS = {"fair_by": SHARE_FAIR_BY_LENGTH_MAX, "value_schema": VALUE_SCHEMA_LENGTH_MAX}
_TOPIC_NAMES = ("dead_letter_topic",)


def stage_schema() -> Schema:
    """The schema, as JSON Schema draft 7 has it: the one that editors read for YAML."""
    push = _settings(asdict(SubscriptionConfig()), SUBSCRIPTION_BOUNDS)
    retry = {name: push.pop(name) for name in RETRY}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A stage of Penstock: the file of `penstock apply`",
        "description": "A setting that you leave out stays as it is, and has its default in a new thing. "
        "null brings the default back.",
        **_object(
            {
                "owns": {
                    "description": "What this file owns, by patterns: --prune deletes what it owns and does not have.",
                    **_object({"names": _TEXTS, "principals": _TEXTS}),
                },
                "topics": _named(
                    {
                        "partitions": {"type": "integer", "minimum": 1, "maximum": TOPIC_PARTITIONS_MAX},
                        **_settings(asdict(TopicConfig()), TOPIC_BOUNDS),
                    }
                ),
                "groups": _named(_settings(asdict(GroupConfig()), GROUP_BOUNDS)),
                "share_groups": _named(
                    {"topics": _TEXTS, **_settings(asdict(ShareGroupConfig()), SHARE_BOUNDS)}, required=["topics"]
                ),
                "subscriptions": _named(
                    {"topics": _TEXTS, "target": _target(), "retry": _object(retry), **push},
                    required=["topics", "target"],
                ),
                "schedules": _named(
                    {
                        "cron": _TEXT,
                        "topic": _TEXT,
                        "record": {"anyOf": [_TEXT, _record()]},
                        "time_zone": {**_TEXT, "default": SCHEDULE_DEFAULTS["time_zone"]},
                        "enabled": {**_FLAG, "default": SCHEDULE_DEFAULTS["enabled"]},
                    },
                    required=["cron", "topic", "record"],
                ),
                "acls": {"type": ["array", "null"], "items": _rule()},
                "quotas": {"type": ["array", "null"], "items": _quota()},
            }
        ),
    }


def _object(properties: Mapping[str, Schema], required: list[str] | None = None) -> Schema:
    needs = {"required": required} if required else {}
    return {"type": "object", "properties": dict(properties), "additionalProperties": False, **needs}


def _named(properties: Mapping[str, Schema], required: list[str] | None = None) -> Schema:
    """Things by name. A thing may be empty, where it needs nothing."""
    thing = _object(properties, required)
    return {
        "type": ["object", "null"],
        "additionalProperties": thing if required else {**thing, "type": ["object", "null"]},
    }


def _settings(defaults: Mapping[str, Any], bounds: Mapping[str, tuple[int, int]]) -> dict[str, Schema]:
    return {name: _setting(name, default, bounds) for name, default in defaults.items()}


def _setting(name: str, default: Any, bounds: Mapping[str, tuple[int, int]]) -> Schema:
    known = {} if default is None else {"default": default}
    if name in _CHOICES:
        return {"enum": [*_CHOICES[name], None], **known}
    if name in _OBJECTS:
        return {"type": ["object", "null"]}
    if name in _FREE_TEXTS:
        return {"type": ["string", "null"], "minLength": 1, "maxLength": _FREE_TEXTS[name], **known}
    if name in _TOPIC_NAMES:
        return {"type": ["string", "null"]}
    if isinstance(default, bool):
        return {"type": ["boolean", "null"], **known}
    low, high = bounds[name]
    number = _number(name, low, high)
    if name in MAY_BE_UNLIMITED or name == "age_ms_max":
        number["anyOf"].append({"const": UNLIMITED})
    number["anyOf"].append({"type": "null"})
    return {**number, **known}


def _number(name: str, low: int, high: int) -> Schema:
    """A whole number, or a text with a unit where the name says time or size."""
    forms: list[Schema] = [{"type": "integer", "minimum": low, "maximum": high}]
    if "_ms" in name:
        forms.append({"type": "string", "pattern": _DURATION})
    elif "bytes" in name:
        forms.append({"type": "string", "pattern": _SIZE})
    return {"anyOf": forms}


def _target() -> Schema:
    endpoint = _object({"url": _TEXT, "secret_env": _TEXT}, required=["url"])
    stage = _object({each.name: _TEXT for each in fields(StageTarget)}, required=["url"])
    kinds = {kind: {"https": endpoint, "stage": stage}.get(kind, _TEXT) for kind in KINDS}
    return {**_object(kinds), "minProperties": 1, "maxProperties": 1}


def _record() -> Schema:
    text: Schema = {"type": ["string", "null"]}
    header: Schema = {"type": "array", "minItems": 2, "maxItems": 2}
    return _object({**dict.fromkeys(RECORD_FIELDS, text), "headers": {"type": "array", "items": header}})


def _rule() -> Schema:
    operation: Schema = {"enum": [*(each.value for each in Operation), ALL]}
    return _object(
        {
            "principal": _TEXTS,
            "operations": {"anyOf": [operation, {"type": "array", "items": operation, "minItems": 1}]},
            "resources": _TEXTS,
            "permission": {"enum": [ALLOW, DENY], "default": ALLOW},
        },
        required=["principal", "operations", "resources"],
    )


def _quota() -> Schema:
    rates = {str(rate): _number(rate, 1, QUOTA_RATE_MAX) for rate in Rate}
    counts = {str(count): _number(count, 0, QUOTA_COUNT_MAX) for count in Count}
    stored = {STORED_BYTES: _number(STORED_BYTES, 0, QUOTA_STORED_BYTES_MAX)}
    return {
        "anyOf": [
            _object({"principal": _TEXT, "shared": _FLAG, **rates, **counts}, required=["principal"]),
            _object({"topic": _TEXT, "shared": _FLAG, **rates, **stored}, required=["topic"]),
        ]
    }


if __name__ == "__main__":
    print(json.dumps(stage_schema(), indent=2))
