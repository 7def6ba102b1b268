"""The handlers of groups, in front of a service in memory, without a socket: one desk is one gateway."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from kio.index import load_request_schema

from penstock.http.transport import Transport
from penstock.model import TopicPartition
from penstock.system import wall_clock_ms
from penstock.testing import MemoryPenstock, ThreadedTransport
from penstock_kafka.apis import groups_apis
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import ApiKey, Call, Peer, Registry
from penstock_kafka.dispatch.messages import entity_of
from penstock_kafka.dispatch.names import with_service_names
from penstock_kafka.groups.classic.consumer_protocol import write_subscription
from penstock_kafka.service.service import Service
from tests.kafka.running_gateway import SETTINGS

Result = TypeVar("Result")


class GroupDesk:
    """Answers requests to the APIs of groups, each in a version of your choice."""

    def __init__(self, service: MemoryPenstock, transport: Transport | None = None) -> None:
        self.context = context = Context(
            service=Service(ThreadedTransport(transport or service.transport)), settings=SETTINGS
        )
        self._registry = Registry(with_service_names(each) for each in groups_apis(context))
        self.peer = Peer(number=1, address="test")

    async def ask(self, key: ApiKey, version: int, **fields: object) -> dict[str, Any]:
        """The answer to a request with these fields; the others have Kafka's defaults."""
        api = self._registry.find(key, version)
        assert api is not None
        kind: Any = load_request_schema(key, version)
        call = Call(key=key, version=version, client_id="app", peer=self.peer, request=entity_of(kind, fields))
        answer = await api.handler(call)
        assert answer is not None
        return dict(answer)

    async def join(self, member_id: str = "", *, group: str = "g", **fields: object) -> dict[str, Any]:
        """JoinGroup for `orders`, with the id that the gateway demands. It waits for nothing."""
        request: dict[str, object] = {
            "group_id": group,
            "session_timeout": 6_000,
            "rebalance_timeout": 1,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": write_subscription(["orders"])}],
            **fields,
        }
        answer = await self.ask(ApiKey.JOIN_GROUP, 9, member_id=member_id, **request)
        if answer["error_code"].name != "member_id_required":
            return answer
        return await self.ask(ApiKey.JOIN_GROUP, 9, member_id=answer["member_id"], **request)

    async def sync(self, joined: Mapping[str, Any], *, group: str = "g") -> dict[str, Any]:
        """SyncGroup after this join."""
        return await self.ask(ApiKey.SYNC_GROUP, 5, group_id=group, **_of(joined))

    async def beat(self, joined: Mapping[str, Any], *, group: str = "g") -> str:
        """The code that answers a Heartbeat."""
        answer = await self.ask(ApiKey.HEARTBEAT, 4, group_id=group, **_of(joined))
        return str(answer["error_code"].name)

    async def commit(
        self, joined: Mapping[str, Any], offsets: Mapping[int, int], *, metadata: str = ""
    ) -> dict[int, str]:
        """The codes that answer an OffsetCommit for partitions of `orders`."""
        partitions = [
            {"partition_index": number, "committed_offset": offset, "committed_metadata": metadata}
            for number, offset in offsets.items()
        ]
        answer = await self.ask(
            ApiKey.OFFSET_COMMIT,
            9,
            group_id="g",
            member_id=joined.get("member_id", ""),
            generation_id_or_member_epoch=joined.get("generation_id", joined.get("member_epoch", -1)),
            topics=[{"name": "orders", "partitions": partitions}],
        )
        [topic] = answer["topics"]
        return {each["partition_index"]: each["error_code"].name for each in topic["partitions"]}


NOBODY: Mapping[str, Any] = {}


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a test's work in a loop of its own."""
    return asyncio.run(work)


def committed(service: MemoryPenstock, group: str = "g") -> dict[int, int]:
    """The group's offsets in `orders`, as the service has them."""
    return {
        each.partition: each.offset for each in service.admin().group_offsets(group, "orders") if each.topic == "orders"
    }


def owners(service: MemoryPenstock, group: str = "g") -> dict[TopicPartition, str | None]:
    """The owner of each partition."""
    found = service.admin().describe_group(group).partitions
    return {TopicPartition(each.topic, each.partition): each.owner for each in found}


def now_ms() -> int:
    """The wall clock."""
    return wall_clock_ms()


def _of(joined: Mapping[str, Any]) -> dict[str, Any]:
    return {"member_id": joined["member_id"], "generation_id": joined["generation_id"]}
