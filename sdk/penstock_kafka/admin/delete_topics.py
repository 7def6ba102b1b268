"""DeleteTopics, by name or by id."""

from penstock.api.calls import delete_topic
from penstock_core.errors import PenstockError
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Call, Uuid
from penstock_kafka.errors import KafkaError, RequestRefused, error_message, kafka_error
from penstock_kafka.service.topic_directory import uuid_of

_IDS_VERSION = 6  # from here on a topic may be named by its id


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
