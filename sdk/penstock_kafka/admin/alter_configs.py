"""IncrementalAlterConfigs and AlterConfigs: the settings of topics and of groups."""

from collections.abc import Awaitable, Callable
from typing import Any

from penstock.api.calls import alter_topic, topic_metadata
from penstock_core.errors import PenstockError
from penstock_kafka.admin.describe_configs import GROUP, TOPIC
from penstock_kafka.admin.group_settings import open_group_settings
from penstock_kafka.admin.topic_settings import changed_list, check, penstock_settings
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.errors import KafkaError, RequestRefused, error_message, kafka_error

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)

Changes = dict[str, Any]


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
