"""CreateTopics. Zones keep the copies, so a replication factor is a wish that the stage fulfils or exceeds."""

from collections import Counter
from collections.abc import Iterable, Sequence

from penstock.api.calls import create_topic
from penstock.model import Topic
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import parse_own_topic_name
from penstock_core.log.topic import check_partitions
from penstock_kafka.admin.topic_settings import check, kafka_settings, penstock_settings
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.errors import KafkaError, RequestRefused, error_message, kafka_error
from penstock_kafka.service.topic_directory import uuid_of
from penstock_kafka.settings import NODE_ID

_DEFAULT = -1
REPLICAS = 3  # of the bytes of a record; a lower wish is exceeded
_TOPIC_CONFIG, _DEFAULT_CONFIG = 1, 5


class CreateTopics:
    """Creates topics, one call of the service each."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def answer(self, call: Call) -> Answer:
        """The topics, or the errors, in request order."""
        names = Counter(each.name for each in call.request.topics)
        return {
            "topics": [
                await self._one(each, is_twice=names[each.name] > 1, only_checks=call.request.validate_only)
                for each in call.request.topics
            ]
        }

    async def _one(self, wanted: Request, *, is_twice: bool, only_checks: bool) -> Answer:
        try:
            if is_twice:
                raise RequestRefused(KafkaError.invalid_request, f"topic {wanted.name!r} is there twice")
            partitions, config = self._checked(wanted)
            if only_checks:
                await self._check_name(wanted.name)
                return {"name": wanted.name, "error_code": KafkaError.none, "num_partitions": partitions}
            topic = await self._context.service.call(create_topic(wanted.name, partitions, config))
        except (PenstockError, RequestRefused) as error:
            code = KafkaError.request_timed_out if isinstance(error, PenstockError) and error.maybe_applied else None
            return {
                "name": wanted.name,
                "error_code": code or kafka_error(error),
                "error_message": error_message(error),
                "configs": None,
            }
        self._context.service.topics.changed(topic)
        return _created(topic)

    def _checked(self, wanted: Request) -> tuple[int, dict[str, object]]:
        if wanted.assignments:
            check_assigned([each.broker_ids for each in wanted.assignments])
            if sorted(each.partition_index for each in wanted.assignments) != [*range(len(wanted.assignments))]:
                raise RequestRefused(
                    KafkaError.invalid_replica_assignment, "assign each partition from 0 on, and each once"
                )
        if wanted.replication_factor != _DEFAULT and not 1 <= wanted.replication_factor <= REPLICAS:
            raise RequestRefused(
                KafkaError.invalid_replication_factor,
                f"replication factor {wanted.replication_factor}: the service keeps {REPLICAS} copies, so give -1 or 1 "
                f"to {REPLICAS}",
            )
        partitions = len(wanted.assignments) or wanted.num_partitions
        if partitions == _DEFAULT:
            partitions = self._context.settings.created_partitions
        try:
            check_partitions(partitions)
        except PenstockError as error:
            raise RequestRefused(KafkaError.invalid_partitions, error.message) from None
        config = penstock_settings(
            ((each.name, each.value) for each in wanted.configs),
            is_strict=self._context.settings.refuses_unknown_settings,
        )
        config = {name: value for name, value in config.items() if value is not None}
        check(config)
        return partitions, config

    async def _check_name(self, name: str) -> None:
        parse_own_topic_name(name)
        try:
            await self._context.service.topics.topic(name)
        except PenstockError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC:
                return
            raise
        raise RequestRefused(KafkaError.topic_already_exists, f"topic {name!r} exists")


def check_assigned(brokers: Iterable[Sequence[int]]) -> None:
    """Raises RequestRefused for a partition that is assigned to other brokers than the one that there is."""
    if any([*each] != [NODE_ID] for each in brokers):
        raise RequestRefused(
            KafkaError.invalid_replica_assignment,
            f"the service places the copies: assign none, or each partition to broker {NODE_ID} alone",
        )


def _created(topic: Topic) -> Answer:
    return {
        "name": topic.name,
        "topic_id": uuid_of(topic),
        "error_code": KafkaError.none,
        "num_partitions": topic.partitions,
        "replication_factor": REPLICAS,
        "configs": [
            {
                "name": each.name,
                "value": each.value,
                "read_only": each.is_read_only,
                "config_source": _DEFAULT_CONFIG if each.is_default else _TOPIC_CONFIG,
                "is_sensitive": False,
            }
            for each in kafka_settings(topic.config, None)
        ],
    }
