"""ShareAcknowledge: the client acknowledges records without a fetch.

The acknowledgements in a request, checked: ranges of offsets with one type, or with a type for each offset.

| type | Kafka's word | to the service                                                      |
|------|--------------|---------------------------------------------------------------------|
| 0    | GAP          | accept: the offset has no record, because compaction has removed it |
| 1    | ACCEPT       | accept                                                              |
| 2    | RELEASE      | release: the record comes again after the group's pause             |
| 3    | REJECT       | reject: the record goes to the dead-letter topic                    |
| 4    | RENEW        | renew: the lock lasts anew                                          |
"""

from collections.abc import Sequence

from penstock.share.acknowledgements import ACCEPT, RELEASE, Verb, Wish, reject
from penstock.system import monotonic_ms
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.service.service import TopicDirectory
from penstock_kafka.share.clients import ENDS, ShareClients, SharePlace
from penstock_kafka.share.held_locks import WishedRange
from penstock_kafka.share.settle import Settlement, Settler, settlement_of
from penstock_kafka.share.share_groups import ShareGroups

_NO_LEADER = {"leader_id": -1, "leader_epoch": -1}
_WISHES = (ACCEPT, ACCEPT, RELEASE, reject("rejected by a share consumer of Kafka"), Wish(Verb.RENEW))
_RENEW = 4


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


def acknowledgements_of(request: Request) -> dict[SharePlace, list[WishedRange] | RequestRefused]:
    """The wishes by partition; a refusal for a partition whose batches are malformed."""
    renews = getattr(request, "is_renew_ack", False)
    found: dict[SharePlace, list[WishedRange] | RequestRefused] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches and topic.topic_id is not None:
                place = SharePlace(topic.topic_id, partition.partition_index)
                try:
                    found[place] = _ranges(partition.acknowledgement_batches, renews=renews)
                except RequestRefused as refused:
                    found[place] = refused
    return found


def _ranges(batches: Sequence[Request], *, renews: bool) -> list[WishedRange]:
    """Ranges of equal wishes, in order. Raises RequestRefused for what Kafka refuses, too."""
    ranges: list[WishedRange] = []
    previous = -1
    for each in batches:
        types, count = each.acknowledge_types, each.last_offset - each.first_offset + 1
        if count < 1 or each.first_offset <= previous:
            raise _malformed(f"offsets {each.first_offset} to {each.last_offset} behind {previous}: ranges must rise")
        if len(types) not in (1, count):
            raise _malformed(f"{len(types)} types for {count} offsets: give one, or one for each")
        if any(not 0 <= kind < len(_WISHES) or (kind == _RENEW and not renews) for kind in types):
            raise _malformed(f"types {sorted(set(types))}: use 0 to 3, and 4 in a request that renews")
        previous = each.last_offset
        if len(types) == 1:
            ranges.append(WishedRange(each.first_offset, each.last_offset + 1, _WISHES[types[0]]))
        else:
            ranges += _runs(each.first_offset, types)
    return ranges


def _runs(first: int, types: Sequence[int]) -> list[WishedRange]:
    runs: list[WishedRange] = []
    for offset, kind in enumerate(types, first):
        wish = _WISHES[kind]
        if runs and runs[-1].wish == wish:
            runs[-1] = runs[-1]._replace(end=offset + 1)
        else:
            runs.append(WishedRange(offset, offset + 1, wish))
    return runs


def _malformed(message: str) -> RequestRefused:
    return RequestRefused(KafkaError.invalid_request, message)
