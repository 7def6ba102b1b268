"""CreateTopics. Zones keep the copies, so a replication factor is a wish that the stage fulfils or exceeds.

CreatePartitions: more partitions for a topic. Fewer are made by `penstock topics alter`, which drains the others.

DeleteTopics, by name or by id.

DeleteRecords: removes the records of a partition below an offset, for every reader.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.api.calls import add_partitions, create_topic, delete_topic, list_offsets, topic_metadata, topic_path
from penstock.errors import error_from_json
from penstock.http.http_message import json_request
from penstock.http.steps import Calls
from penstock.model import Topic
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import parse_own_topic_name
from penstock_core.log.topic import check_partitions
from penstock_kafka.admin.topic_settings import check, kafka_settings, penstock_settings
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Call, Request, Uuid
from penstock_kafka.errors import KafkaError, RequestRefused, error_message, kafka_error
from penstock_kafka.service.service import uuid_of
from penstock_kafka.settings import NODE_ID

_DEFAULT = -1
REPLICAS = 3  # of the bytes of a record; a lower wish is exceeded
_TOPIC_CONFIG, _DEFAULT_CONFIG = 1, 5
_IDS_VERSION = 6  # from here on a topic may be named by its id
_TO_THE_END = -1
_UNKNOWN = -1


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


class CreatePartitions:
    """Adds partitions, topic by topic."""

    def __init__(self, context: Context) -> None:
        self._service = context.service

    async def answer(self, call: Call) -> Answer:
        """The results, in request order."""
        request = call.request
        return {"results": [await self._one(each, only_checks=request.validate_only) for each in request.topics]}

    async def _one(self, wanted: Request, *, only_checks: bool) -> Answer:
        try:
            await self._add(wanted, only_checks=only_checks)
        except (PenstockError, RequestRefused) as error:
            return {"name": wanted.name, "error_code": kafka_error(error), "error_message": error_message(error)}
        return {"name": wanted.name, "error_code": KafkaError.none}

    async def _add(self, wanted: Request, *, only_checks: bool) -> None:
        check_assigned([each.broker_ids for each in wanted.assignments or ()])
        topic = await self._service.call(topic_metadata(wanted.name))
        if topic.writable_partitions != topic.partitions:
            raise RequestRefused(
                KafkaError.invalid_partitions,
                f"{topic.writable_partitions} of {topic.partitions} partitions are writable, the others drain: change "
                "the topic by `penstock topics alter`",
            )
        if wanted.count <= topic.partitions:
            raise RequestRefused(
                KafkaError.invalid_partitions, f"{wanted.count} partitions: the topic has {topic.partitions} already"
            )
        if wanted.assignments is not None and len(wanted.assignments) != wanted.count - topic.partitions:
            raise RequestRefused(
                KafkaError.invalid_replica_assignment,
                f"{len(wanted.assignments)} assignments for {wanted.count - topic.partitions} new partitions",
            )
        if not only_checks:
            changed = await self._service.call(add_partitions(wanted.name, wanted.count))
            self._service.topics.changed(changed)


class DeleteTopics:
    """Deletes topics, one call of the service each."""

    def __init__(self, context: Context) -> None:
        self._service = context.service

    async def answer(self, call: Call) -> Answer:
        """The results, in request order."""
        request = call.request
        if call.version < _IDS_VERSION:
            return {"responses": [await self._one(name, None) for name in request.topic_names]}
        return {"responses": [await self._one(each.name, each.topic_id) for each in request.topics]}

    async def _one(self, name: str | None, topic_id: Uuid | None) -> Answer:
        try:
            if name is None:
                name = None if topic_id is None else await self._service.topics.name_of(topic_id)
                if name is None:
                    raise RequestRefused(KafkaError.unknown_topic_id, "no topic has this id")
                topic_id = uuid_of(await self._service.topics.topic(name))
            await self._service.call(delete_topic(name))
        except (PenstockError, RequestRefused) as error:
            may_be_done = isinstance(error, PenstockError) and error.maybe_applied
            return {
                "name": name,
                "topic_id": topic_id,
                "error_code": KafkaError.request_timed_out if may_be_done else kafka_error(error),
                "error_message": error_message(error),
            }
        finally:
            if name is not None:
                self._service.topics.forget(name)
        return {"name": name, "topic_id": topic_id, "error_code": KafkaError.none}


class DeleteRecords:
    """Truncates partitions, one call of the service per topic."""

    def __init__(self, context: Context) -> None:
        self._service = context.service

    async def answer(self, call: Call) -> Answer:
        """The first offsets that are left, by partition."""
        topics = [
            {"name": each.name, "partitions": await self._topic(each.name, each.partitions)}
            for each in call.request.topics
        ]
        return {"topics": topics}

    async def _topic(self, name: str, wanted: Sequence[Request]) -> list[Answer]:
        refused: dict[int, KafkaError] = {
            each.partition_index: KafkaError.offset_out_of_range for each in wanted if each.offset < _TO_THE_END
        }
        befores = {
            each.partition_index: each.offset
            for each in wanted
            if each.partition_index not in refused and each.partition_index >= 0
        }
        try:
            if _TO_THE_END in befores.values():
                found_ends = await self._service.call(list_offsets(name, "latest"))
                ends = {number: at.offset for number, at in found_ends.items() if at is not None}
                befores = {
                    number: ends.get(number, before) if before == _TO_THE_END else before
                    for number, before in befores.items()
                }
            befores = {number: before for number, before in befores.items() if before >= 0}
            found = await self._service.call(_truncate(name, befores)) if befores else {}
        except PenstockError as error:
            found, refused = {}, {each.partition_index: kafka_error(error) for each in wanted}
        return [_result(each.partition_index, found, refused) for each in wanted]


def _truncate(name: str, befores: Mapping[int, int]) -> Calls[dict[int, int | PenstockError]]:
    body = {str(number): before for number, before in befores.items()}
    answer = yield json_request("POST", f"{topic_path(name)}/truncate", body=body, is_repeatable=True)
    found: list[Mapping[str, Any]] = answer["partitions"]
    return {
        each["partition"]: error_from_json(each["error"]) if "error" in each else each["log_start_offset"]
        for each in found
    }


def _result(number: int, found: Mapping[int, int | PenstockError], refused: Mapping[int, KafkaError]) -> Answer:
    outcome = found.get(number)
    if isinstance(outcome, int):
        return {"partition_index": number, "low_watermark": outcome, "error_code": KafkaError.none}
    code = refused.get(number, KafkaError.unknown_topic_or_partition)
    if outcome is not None:
        code = kafka_error(outcome)
    return {"partition_index": number, "low_watermark": _UNKNOWN, "error_code": code}
