"""DescribeConfigs: the settings of topics, and those of the gateway that clients ask a broker for."""

from collections.abc import Sequence

from penstock.api.calls import topic_metadata
from penstock_core.errors import PenstockError
from penstock_core.limits import BATCH_BYTES_MAX
from penstock_kafka.admin.create_topics import REPLICAS
from penstock_kafka.admin.group_settings import open_group_settings
from penstock_kafka.admin.topic_settings import Setting, kafka_settings
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
