"""Acknowledgements of a client: what goes to the service, and what its results mean to the client and to its locks.

The acknowledgements of a partition go to the service together or not at all, as in Kafka: one record that the client
does not hold refuses them. What the service then refuses, it refuses by ranges.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.model import TopicPartition
from penstock.share.acknowledgements import GIVE_BACK, Acknowledgement, Verb, next_lock_ids, refusals
from penstock.system import monotonic_ms
from penstock_core.errors import PenstockError
from penstock_kafka.dispatch.api import Uuid
from penstock_kafka.errors import KafkaError, RequestRefused, error_message, kafka_error
from penstock_kafka.service.service import TopicDirectory, uuid_of
from penstock_kafka.share.clients import ShareClient, SharePlace
from penstock_kafka.share.held_locks import WishedRange
from penstock_kafka.share.share_calls import ShareCalls
from penstock_kafka.share.share_groups import ShareGroups

_LOST = "another consumer has records of these, or they were reset: they were not acknowledged"


class Verdict(NamedTuple):
    """The answer to the acknowledgements of a partition."""

    error: KafkaError
    message: str | None = None


OK = Verdict(KafkaError.none)


@dataclass(slots=True, kw_only=True)
class Settlement:
    """The acknowledgements of one request: the entries for the service, and the verdict for each partition."""

    client: ShareClient
    entries: list[Acknowledgement] = field(default_factory=list)
    verdicts: dict[SharePlace, Verdict] = field(default_factory=dict)
    places: dict[TopicPartition, SharePlace] = field(default_factory=dict)

    def take(self, acknowledged: Sequence[Mapping[str, Any]], renewed_until_ms: int) -> None:
        """The service's results."""
        locks = self.client.locks
        for key, lock_id in next_lock_ids(acknowledged, self.entries):
            locks.rename(key, lock_id)
        for entry, refused in refusals(acknowledged, self.entries):
            is_renewal = entry.wish.verb is Verb.RENEW
            bad = [each for each in refused if is_renewal or not each.is_done]
            lost = [offset for offset in entry.offsets if any(each.covers(offset) for each in bad)]
            if is_renewal and not lost:
                locks.renew(entry.key, renewed_until_ms)
            locks.acknowledged(entry, sorted({*entry.offsets}.difference(lost)) if lost else entry.offsets)
            if lost:
                locks.lost(entry.key, lost)
                place = self.places[TopicPartition(entry.key.topic, entry.key.partition)]
                self.verdicts[place] = Verdict(KafkaError.invalid_record_state, _LOST)

    def fail(self, error: PenstockError) -> None:
        """The call has failed, so the client may acknowledge again: a repeat changes nothing that was applied."""
        for entry in self.entries:
            place = self.places[TopicPartition(entry.key.topic, entry.key.partition)]
            self.verdicts[place] = Verdict(kafka_error(error), error_message(error))


class Settler:
    """Sends acknowledgements by themselves, without an acquire."""

    def __init__(self, calls: ShareCalls, groups: ShareGroups) -> None:
        self._calls = calls
        self._groups = groups

    async def settle(self, settlement: Settlement) -> None:
        """Send the entries, and take the results or the failure."""
        if not settlement.entries:
            return
        group = settlement.client.group
        sent_ms = monotonic_ms()
        try:
            results = await self._calls.acknowledge(group, settlement.entries)
        except PenstockError as error:
            settlement.fail(error)
        else:
            settlement.take(results, sent_ms + await self._groups.lock_ms(group))

    async def end(self, client: ShareClient) -> None:
        """End the session. Records that the client has not acknowledged go back, uncounted, as in Kafka."""
        client.end()
        await self.settle(to_settle(client, client.locks.all_entries(GIVE_BACK)))


def to_settle(client: ShareClient, entries: list[Acknowledgement]) -> Settlement:
    """Entries of the gateway's own, whose verdicts no client gets."""
    nowhere = SharePlace(Uuid(int=0), 0)
    places = {TopicPartition(each.key.topic, each.key.partition): nowhere for each in entries}
    return Settlement(client=client, entries=entries, places=places)


async def settlement_of(
    client: ShareClient, wishes: Mapping[SharePlace, list[WishedRange] | RequestRefused], topics: TopicDirectory
) -> Settlement:
    """The entries of a request, and the verdicts for partitions of which nothing goes to the service."""
    found = Settlement(client=client)
    for place, wished in wishes.items():
        try:
            if isinstance(wished, RequestRefused):
                raise wished
            topic = await topic_of(place, topics)
            named = TopicPartition(topic, place.partition)
            found.entries += client.locks.entries(named, wished)
            found.places[named] = place
            found.verdicts[place] = OK
        except (PenstockError, RequestRefused) as error:
            found.verdicts[place] = Verdict(kafka_error(error), error_message(error))
    return found


async def topic_of(place: SharePlace, topics: TopicDirectory) -> str:
    """The name of the topic. Raises RequestRefused if it or the partition is not there, and PenstockError."""
    name = await topics.name_of(place.topic_id)
    topic = None if name is None else await topics.topic(name)
    if topic is None or uuid_of(topic) != place.topic_id:
        raise RequestRefused(KafkaError.unknown_topic_id, f"no topic has the id {place.topic_id}")
    if not 0 <= place.partition < topic.partitions:
        raise RequestRefused(KafkaError.unknown_topic_or_partition, f"{topic.name} has no partition {place.partition}")
    return topic.name
