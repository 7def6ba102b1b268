"""Metadata: the gateway as the only broker, and the leader of each partition.

The one broker that a gateway tells its clients of: itself.

FindCoordinator: this gateway coordinates each group and each transactional id of its clients.

The state of groups and transactions is in the service, so any gateway can answer for any of them.

DescribeCluster: one broker, which is its own controller.
"""

from collections.abc import Sequence

from penstock.api.calls import create_topic
from penstock.model import Topic
from penstock_core.errors import ErrorCode, PenstockError
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Call, Request, Uuid
from penstock_kafka.dispatch.entries import in_parts
from penstock_kafka.errors import KafkaError, kafka_error
from penstock_kafka.service.service import uuid_of
from penstock_kafka.settings import CLUSTER_ID, NODE_ID, Settings

_RIGHTS_UNKNOWN = -(2**31)
_NULL_MEANS_ALL_VERSION = 1  # before, an empty list asks for all topics
_CREATES_VERSION = 4  # before, each request lets the broker create what is missing
_ONE_BY_ONE_MAX = 100  # topics of a request; for more, one list of all is cheaper
_LEADER_EPOCH = 0
_BATCHED_VERSION = 4  # from here on a request has several keys
_KEY_TYPES = (0, 1)  # groups and transactions; key type 2 is a partition of a share group, which no client asks for


class Metadata:
    """Describes topics. It creates missing ones if the operator and the client both want it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._topics = context.service.topics

    async def answer(self, call: Call) -> Answer:
        """The broker, and the topics that the client asks for."""
        request = call.request
        wanted: Sequence[Request] | None = request.topics
        if wanted is None or (not wanted and call.version < _NULL_MEANS_ALL_VERSION):
            topics = await self._all()
        else:
            topics = await self._named(call, wanted)
        return {
            "brokers": [broker(self._context.settings)],
            "cluster_id": CLUSTER_ID,
            "controller_id": NODE_ID,
            "topics": topics,
            "cluster_authorized_operations": _RIGHTS_UNKNOWN,
        }

    async def _all(self) -> list[Answer]:
        try:
            return [_described(topic) for topic in await self._topics.topics()]
        except PenstockError as error:
            if error.code.is_retriable:
                raise
            return []  # as Kafka: of topics that the client may not see, it sees none

    async def _named(self, call: Call, wanted: Sequence[Request]) -> list[Answer]:
        may_create = self._context.settings.creates_topics and (
            call.version < _CREATES_VERSION or bool(call.request.allow_auto_topic_creation)
        )
        listed = await self._listed() if len(wanted) > _ONE_BY_ONE_MAX else None

        async def look(each: Request) -> Answer:
            topic_id = getattr(each, "topic_id", None)
            if listed is None or each.name is None or (each.name not in listed and may_create):
                return await self._one(each.name, topic_id, may_create=may_create)
            topic = listed.get(each.name)
            return (
                _refused(each.name, topic_id, KafkaError.unknown_topic_or_partition)
                if topic is None
                else _described(topic)
            )

        return await in_parts(wanted, look)

    async def _listed(self) -> dict[str, Topic] | None:
        """All topics by name, two seconds old at most; None if the gateway may not list them."""
        try:
            return {topic.name: topic for topic in await self._topics.topics()}
        except PenstockError as error:
            if error.code.is_retriable:
                raise
            return None

    async def _one(self, name: str | None, topic_id: Uuid | None, *, may_create: bool) -> Answer:
        try:
            if name is None:
                name = None if topic_id is None else await self._topics.name_of(topic_id)
                if name is None:
                    return _refused(None, topic_id, KafkaError.unknown_topic_id)
                may_create = False
            try:
                topic = await self._topics.topic(name)
            except PenstockError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC or not may_create:
                    raise
                topic = await self._create(name)
        except PenstockError as error:
            code = KafkaError.leader_not_available if error.code.is_retriable else kafka_error(error)
            return _refused(name, topic_id, code)
        if topic_id and uuid_of(topic) != topic_id:
            return _refused(name, topic_id, KafkaError.unknown_topic_id)
        return _described(topic)

    async def _create(self, name: str) -> Topic:
        try:
            await self._context.service.call(create_topic(name, self._context.settings.created_partitions, {}))
        except PenstockError as error:
            if error.code is not ErrorCode.TOPIC_EXISTS and not error.maybe_applied:
                raise
        self._topics.forget(name)
        return await self._topics.topic(name)


def _described(topic: Topic) -> Answer:
    return {
        "error_code": KafkaError.none,
        "name": topic.name,
        "topic_id": uuid_of(topic),
        "is_internal": False,
        "partitions": [_partition(number) for number in range(topic.partitions)],
        "topic_authorized_operations": _RIGHTS_UNKNOWN,
    }


def _partition(number: int) -> Answer:
    return {
        "error_code": KafkaError.none,
        "partition_index": number,
        "leader_id": NODE_ID,
        "leader_epoch": _LEADER_EPOCH,
        "replica_nodes": [NODE_ID],
        "isr_nodes": [NODE_ID],
        "offline_replicas": [],
    }


def _refused(name: str | None, topic_id: Uuid | None, code: KafkaError) -> Answer:
    return {"error_code": code, "name": name, "topic_id": topic_id, "partitions": []}


def broker(settings: Settings) -> Answer:
    """The fields of a broker in Metadata, FindCoordinator and DescribeCluster."""
    advertised = settings.advertised
    return {"node_id": NODE_ID, "broker_id": NODE_ID, "host": advertised.host, "port": advertised.port, "rack": None}


class FindCoordinator:
    """Answers with the gateway itself."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def answer(self, call: Call) -> Answer:
        """The coordinator of each key."""
        key_type = getattr(call.request, "key_type", 0)
        found = self._found(is_known=key_type in _KEY_TYPES)
        if call.version < _BATCHED_VERSION:
            return found
        return {"coordinators": [{**found, "key": key} for key in call.request.coordinator_keys]}

    def _found(self, *, is_known: bool) -> Answer:
        if is_known:
            return {"error_code": KafkaError.none, "error_message": None, **broker(self._settings)}
        return {
            "error_code": KafkaError.invalid_request,
            "error_message": "the key is neither of a group nor of a transactional id",
            "node_id": -1,
            "host": "",
            "port": -1,
        }


class DescribeCluster:
    """Answers with the gateway itself."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def answer(self, call: Call) -> Answer:  # noqa: ARG002 - the answer is the same for each client
        """The cluster."""
        return {
            "cluster_id": CLUSTER_ID,
            "controller_id": NODE_ID,
            "brokers": [broker(self._settings)],
            "cluster_authorized_operations": _RIGHTS_UNKNOWN,
        }
