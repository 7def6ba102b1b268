"""DescribeConfigs: the settings of topics, and those of the gateway that clients ask a broker for.

IncrementalAlterConfigs and AlterConfigs: the settings of topics and of groups.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from penstock.api.calls import alter_topic, topic_metadata
from penstock_core.errors import PenstockError
from penstock_core.limits import BATCH_BYTES_MAX
from penstock_kafka.admin.topic_settings import (
    Setting,
    changed_list,
    check,
    kafka_settings,
    open_group_settings,
    penstock_settings,
)
from penstock_kafka.admin.topics import REPLICAS
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.errors import KafkaError, RequestRefused, error_message, kafka_error
from penstock_kafka.settings import NODE_ID

TOPIC, BROKER, GROUP = 2, 4, 32
_TOPIC_SOURCE, _BROKER_SOURCE, _DEFAULT_SOURCE, _GROUP_SOURCE = 1, 4, 5, 8
_SOURCES = {TOPIC: _TOPIC_SOURCE, BROKER: _BROKER_SOURCE, GROUP: _GROUP_SOURCE}
_BOOLEAN, _STRING, _INT, _LONG, _LIST = 1, 2, 3, 5, 7
_INTS = (
    "default.replication.factor",
    "max.message.bytes",
    "message.max.bytes",
    "min.insync.replicas",
    "num.partitions",
)
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
Changes = dict[str, Any]


class DescribeConfigs:
    """Shows settings. It has no words about them: `include_documentation` changes nothing, as Kafka allows."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def answer(self, call: Call) -> Answer:
        """The settings, in request order."""
        return {"results": [await self._one(each) for each in call.request.resources]}

    async def _one(self, wanted: Request) -> Answer:
        named = {"resource_type": wanted.resource_type, "resource_name": wanted.resource_name}
        try:
            found = await self._settings(wanted.resource_type, wanted.resource_name, wanted.configuration_keys)
        except (PenstockError, RequestRefused) as error:
            return {**named, "error_code": kafka_error(error), "error_message": error_message(error)}
        source = _SOURCES[wanted.resource_type]
        return {**named, "error_code": KafkaError.none, "configs": [_shown(each, source) for each in found]}

    async def _settings(self, kind: int, name: str, wanted: Sequence[str] | None) -> list[Setting]:
        if kind == TOPIC:
            topic = await self._context.service.call(topic_metadata(name))
            return kafka_settings(topic.config, wanted)
        if kind == BROKER and name in (str(NODE_ID), ""):
            return [each for each in self._of_broker() if wanted is None or each.name in wanted]
        if kind == GROUP:
            return await open_group_settings(self._context).shown(name, wanted)
        raise RequestRefused(
            KafkaError.invalid_request,
            f"resource {name[:100]!r} of type {kind}: topics, groups and broker {NODE_ID} are shown",
        )

    def _of_broker(self) -> list[Setting]:
        settings = self._context.settings
        values = {
            "advertised.listeners": f"{settings.security_protocol}://{settings.advertised}",
            "auto.create.topics.enable": str(settings.creates_topics).lower(),
            "default.replication.factor": str(REPLICAS),
            "delete.topic.enable": "true",
            "message.max.bytes": str(BATCH_BYTES_MAX),
            "num.partitions": str(settings.created_partitions),
        }
        return [Setting(name=name, value=value, is_default=False, is_read_only=True) for name, value in values.items()]


def _shown(setting: Setting, source: int) -> Answer:
    return {
        "name": setting.name,
        "value": setting.value,
        "read_only": setting.is_read_only,
        "is_default": setting.is_default,
        "config_type": _type_of(setting),
        "config_source": _DEFAULT_SOURCE if setting.is_default else source,
        "is_sensitive": False,
        "synonyms": [],
        "documentation": None,
    }


def _type_of(setting: Setting) -> int:
    """Kafka's type of the setting."""
    if setting.value in ("true", "false"):
        return _BOOLEAN
    if setting.name == "cleanup.policy":
        return _LIST
    if setting.name in _INTS:
        return _INT
    return _LONG if setting.name.endswith((".bytes", ".ms")) else _STRING


class AlterConfigs:
    """Changes settings, resource by resource: all changes of a resource, or none."""

    def __init__(self, context: Context) -> None:
        self._service = context.service
        self._is_strict = context.settings.refuses_unknown_settings
        self._groups = open_group_settings(context)

    async def incremental(self, call: Call) -> Answer:
        """IncrementalAlterConfigs: the settings that are named are set, or set back to their defaults."""
        return await self._answer(call, self._named)

    async def whole(self, call: Call) -> Answer:
        """AlterConfigs: settings that are not named are set back to their defaults."""
        return await self._answer(call, self._all)

    async def _answer(self, call: Call, changes_of: Callable[[Request], Awaitable[Changes]]) -> Answer:
        only_checks = call.request.validate_only
        return {"responses": [await self._one(each, changes_of, only_checks) for each in call.request.resources]}

    async def _one(
        self,
        wanted: Request,
        changes_of: Callable[[Request], Awaitable[Changes]],
        only_checks: bool,
    ) -> Answer:
        named = {"resource_type": wanted.resource_type, "resource_name": wanted.resource_name}
        try:
            if wanted.resource_type == GROUP:
                await self._groups.alter(wanted.resource_name, _values(wanted), only_checks=only_checks)
                return {**named, "error_code": KafkaError.none}
            if wanted.resource_type != TOPIC:
                raise RequestRefused(
                    KafkaError.invalid_request,
                    f"type {wanted.resource_type}: only the settings of topics and groups change here",
                )
            changes = await changes_of(wanted)
            if only_checks:
                topic = await self._service.call(topic_metadata(wanted.resource_name))
                merged = {**topic.config, **changes}
                check({name: value for name, value in merged.items() if value is not None})
            elif changes:
                changed = await self._service.call(alter_topic(wanted.resource_name, changes))
                self._service.topics.remember([changed])
        except (PenstockError, RequestRefused) as error:
            return {**named, "error_code": kafka_error(error), "error_message": error_message(error)}
        return {**named, "error_code": KafkaError.none}

    async def _named(self, wanted: Request) -> Changes:
        values = _values(wanted)
        lists = [each for each in wanted.configs if each.config_operation in (_APPEND, _SUBTRACT)]
        if lists:
            config = (await self._service.call(topic_metadata(wanted.resource_name))).config
            for each in lists:
                appends = each.config_operation == _APPEND
                values[each.name] = changed_list(each.name, each.value, config, appends=appends)
        return penstock_settings(values.items(), is_strict=self._is_strict)

    async def _all(self, wanted: Request) -> Changes:
        topic = await self._service.call(topic_metadata(wanted.resource_name))
        named = penstock_settings(_values(wanted).items(), is_strict=self._is_strict)
        return {**dict.fromkeys(topic.config), **named}


def _values(wanted: Request) -> dict[str, str | None]:
    """The values by name, None for a setting that goes back to its default. Raises RequestRefused for a name twice."""
    values: dict[str, str | None] = {}
    for each in wanted.configs:
        if each.name in values:
            raise RequestRefused(KafkaError.invalid_request, f"{each.name[:100]!r} is there twice")
        values[each.name] = None if getattr(each, "config_operation", _SET) == _DELETE else each.value
    return values
