"""CreatePartitions: more partitions for a topic. Fewer are made by `penstock topics alter`, which drains the others."""

from penstock.api.calls import add_partitions, topic_metadata
from penstock_core.errors import PenstockError
from penstock_kafka.admin.create_topics import check_assigned
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.errors import KafkaError, RequestRefused, error_message, kafka_error


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
