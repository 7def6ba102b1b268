"""The handlers of share groups, in front of a service in memory, without a socket: one desk is one gateway."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

from penstock.http.transport import Transport
from penstock.testing import MemoryPenstock, ThreadedTransport
from penstock_core.records.codec import decode
from penstock_core.records.record_batch import walk
from penstock_kafka.apis import groups_apis, share_apis
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import ApiKey, Peer, Registry, Uuid
from penstock_kafka.service.service import Service, uuid_of
from tests.kafka.groups.desk import GroupDesk
from tests.kafka.running_gateway import SETTINGS

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class ShareDesk(GroupDesk):
    """Answers requests to the APIs of share groups. Groups that it creates start at the earliest records."""

    def __init__(self, service: MemoryPenstock, transport: Transport | None = None) -> None:
        self.context = Context(
            service=Service(ThreadedTransport(transport or service.transport)),
            settings=replace(SETTINGS, share_start="earliest"),
        )
        self._registry = Registry(chain(groups_apis(self.context), share_apis(self.context)))
        self.peer = Peer(number=1, address="test")

    def client_goes(self) -> None:
        """The connection of the next requests has ended."""
        self.peer.gone.set()

    async def context_is_idle(self) -> None:
        """Until the gateway has settled what it does in the background."""
        while work := [each for each in self.context.tasks if each.get_name() == "penstock-kafka-share-settle"]:
            await asyncio.wait(work)

    async def close(self) -> None:
        """The gateway stops."""
        await self.context.close()


class Got(NamedTuple):
    """A record that a client has got."""

    partition: int
    offset: int
    value: str
    deliveries: int


@dataclass(slots=True, kw_only=True, eq=False)
class ShareMemberOf:
    """A client of the group `workers`, as its library behaves. `topic` is the id of what it fetches."""

    desk: ShareDesk
    topic: Uuid
    member_id: str = "m1"
    partitions: Sequence[int] = (0, 1, 2)
    epoch: int = 0
    answer: dict[str, Any] = field(default_factory=dict)

    async def join(self, *topics: str, group: str = "workers") -> dict[str, Any]:
        """Heartbeat for the first time."""
        return await self.desk.ask(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            1,
            group_id=group,
            member_id=self.member_id,
            member_epoch=0,
            subscribed_topic_names=topics or ("orders",),
        )

    async def fetch(
        self, acknowledgements: Mapping[int, Sequence[tuple[int, int, Sequence[int]]]] | None = None, **fields: object
    ) -> list[Got]:
        """Fetch, and acknowledge ranges by partition: first and last offset, and types."""
        request: dict[str, object] = {
            "group_id": "workers",
            "member_id": self.member_id,
            "share_session_epoch": self.epoch,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1_000_000,
            "max_records": 100,
            "topics": self._topics(acknowledgements or {}, self.partitions if self.epoch == 0 else ()),
            **fields,
        }
        self.answer = await self.desk.ask(ApiKey.SHARE_FETCH, 2, **request)
        if self.answer["error_code"].name == "none":
            self.epoch += 1
        return [*_records(self.answer)]

    async def acknowledge(
        self, acknowledgements: Mapping[int, Sequence[tuple[int, int, Sequence[int]]]], **fields: object
    ) -> dict[int, str]:
        """The codes that answer, by partition."""
        request: dict[str, object] = {
            "group_id": "workers",
            "member_id": self.member_id,
            "share_session_epoch": self.epoch,
            "topics": self._topics(acknowledgements, ()),
            **fields,
        }
        self.answer = await self.desk.ask(ApiKey.SHARE_ACKNOWLEDGE, 2, **request)
        if self.answer["error_code"].name == "none":
            self.epoch += 1
        return {
            each["partition_index"]: each["error_code"].name
            for topic in self.answer["responses"]
            for each in topic["partitions"]
        }

    async def accept(self, records: Iterable[Got]) -> dict[int, str]:
        """Accept these."""
        wanted: dict[int, list[tuple[int, int, Sequence[int]]]] = {}
        for each in sorted(records):
            wanted.setdefault(each.partition, []).append((each.offset, each.offset, [ACCEPT]))
        return await self.acknowledge(wanted)

    def verdicts(self) -> dict[int, int]:
        """The codes of the acknowledgements in the last fetch, by partition."""
        return {
            each["partition_index"]: each["acknowledge_error_code"]
            for topic in self.answer["responses"]
            for each in topic["partitions"]
        }

    def _topics(
        self, acknowledgements: Mapping[int, Sequence[tuple[int, int, Sequence[int]]]], partitions: Sequence[int]
    ) -> list[dict[str, object]]:
        wanted = [
            {
                "partition_index": number,
                "acknowledgement_batches": [
                    {"first_offset": first, "last_offset": last, "acknowledge_types": types}
                    for first, last, types in acknowledgements.get(number, ())
                ],
            }
            for number in dict.fromkeys([*partitions, *acknowledgements])
        ]
        return [{"topic_id": self.topic, "partitions": wanted}] if wanted else []


def member_of(desk: ShareDesk, service: MemoryPenstock, member_id: str = "m1", topic: str = "orders") -> ShareMemberOf:
    """A member that fetches the topic, of one partition or more."""
    found = next(each for each in service.admin().list_topics() if each.name == topic)
    return ShareMemberOf(desk=desk, topic=uuid_of(found), member_id=member_id, partitions=range(found.partitions))


def send(service: MemoryPenstock, *values: str, topic: str = "orders", partition: int = 0) -> None:
    """One batch for each record."""
    with service.producer(linger_ms=0) as producer:
        for value in values:
            producer.send(topic, value=value.encode(), partition=partition)
            producer.flush()


def _records(answer: Mapping[str, Any]) -> Iterable[Got]:
    """The records that are acquired, as clients find them: by ranges, in batches that rise."""
    for topic in answer["responses"]:
        for each in topic["partitions"]:
            data = memoryview(bytes(each["records"]))
            found: dict[int, Any] = {}
            bases = [batch.base_offset for _, batch in walk(data)]
            assert bases == sorted(set(bases))
            for position, batch in walk(data):
                found |= {record.offset: record for record in decode(data[position : position + batch.length])}
            for run in each["acquired_records"]:
                for offset in range(run["first_offset"], run["last_offset"] + 1):
                    if offset in found:
                        value = found[offset].value or b""
                        yield Got(each["partition_index"], offset, bytes(value).decode(), run["delivery_count"])
