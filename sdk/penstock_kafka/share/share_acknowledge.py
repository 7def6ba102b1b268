"""ShareAcknowledge: the client acknowledges records without a fetch."""

from penstock.system import monotonic_ms
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.service.topic_directory import TopicDirectory
from penstock_kafka.share.ack_batches import acknowledgements_of
from penstock_kafka.share.clients import ENDS, ShareClients
from penstock_kafka.share.settle import Settlement, Settler, settlement_of
from penstock_kafka.share.share_groups import ShareGroups

_NO_LEADER = {"leader_id": -1, "leader_epoch": -1}


class ShareAcknowledge:
    """Answers ShareAcknowledge."""

    def __init__(self, clients: ShareClients, settler: Settler, topics: TopicDirectory, groups: ShareGroups) -> None:
        self._clients = clients
        self._settler = settler
        self._topics = topics
        self._groups = groups

    async def answer(self, call: Call) -> Answer:
        """The verdict for each partition. The last request of a session also gives back all other records."""
        request = call.request
        try:
            client = self._clients.acknowledging(request, monotonic_ms())
        except RequestRefused as refused:
            return {"error_code": refused.code, "error_message": refused.message, "responses": []}
        settlement = await settlement_of(client, acknowledgements_of(request), self._topics)
        await self._settler.settle(settlement)
        if request.share_session_epoch == ENDS:
            await self._settler.end(client)
        return {
            "error_code": KafkaError.none,
            "acquisition_lock_timeout": await self._groups.lock_ms(client.group),
            "responses": _responses(settlement),
        }


def _responses(settlement: Settlement) -> list[Answer]:
    topics: dict[object, list[Answer]] = {}
    for place, verdict in settlement.verdicts.items():
        topics.setdefault(place.topic_id, []).append(
            {
                "partition_index": place.partition,
                "error_code": verdict.error,
                "error_message": verdict.message,
                "current_leader": _NO_LEADER,
            }
        )
    return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()]
