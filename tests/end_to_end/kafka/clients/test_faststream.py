"""FastStream's brokers through the gateway, in front of the deployed stack: batches, and what an error acknowledges."""

import asyncio
from typing import Any

import pytest
from faststream import AckPolicy

from penstock import Admin, Producer
from tests.end_to_end.kafka.clients.client import CALL_S
from tests.end_to_end.kafka.clients.faststream_clients import KINDS, FastStream
from tests.end_to_end.local_stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.minutes]

VALUES = [f"value {number}" for number in range(30)]


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest) -> FastStream:
    return FastStream(KINDS[request.param])


async def _subscribed(broker: Any, is_done: asyncio.Event) -> None:
    async with broker:
        await broker.start()
        async with asyncio.timeout(CALL_S):
            await is_done.wait()


def test_faststream_publishes_and_takes_batches(client: FastStream, servers: str, topic: str) -> None:
    async def work() -> list[list[str]]:
        async with client.broker(servers) as publisher:
            await publisher.publish_batch(*VALUES, topic=topic, partition=0)
        broker, taken, is_done = client.broker(servers), list[list[str]](), asyncio.Event()

        async def take(values: list[str]) -> None:
            taken.append(values)
            if sum(map(len, taken)) >= len(VALUES):
                is_done.set()

        broker.subscriber(topic, group_id=topic, auto_offset_reset="earliest", batch=True)(take)
        await _subscribed(broker, is_done)
        return taken

    taken = asyncio.run(work())
    assert [value for values in taken for value in values] == VALUES


@pytest.mark.parametrize(
    ("policy", "handed_out"),
    [
        (AckPolicy.NACK_ON_ERROR, [*VALUES[:11], *VALUES[10:]]),
        (AckPolicy.REJECT_ON_ERROR, VALUES),
        (AckPolicy.ACK, VALUES),
    ],
    ids=["nack", "reject", "ack"],
)
def test_faststream_hands_a_record_out_again_only_if_its_policy_says_so(
    client: FastStream,
    servers: str,
    stack: Stack,
    admin: Admin,
    topic: str,
    policy: AckPolicy,
    handed_out: list[str],
) -> None:
    with Producer(transport=stack.transport()) as producer:
        for value in VALUES:
            producer.send(topic, value.encode(), partition=0)

    async def work() -> list[str]:
        broker, taken, is_done = client.broker(servers), list[str](), asyncio.Event()

        async def take(value: str) -> None:
            taken.append(value)
            if len(taken) == len(handed_out):
                is_done.set()
            if value == VALUES[10] and taken.count(value) == 1:
                raise ValueError(value)

        broker.subscriber(topic, group_id=topic, auto_offset_reset="earliest", ack_policy=policy)(take)
        await _subscribed(broker, is_done)
        return taken

    assert asyncio.run(work()) == handed_out
    assert {each.partition: each.offset for each in admin.group_offsets(topic)}[0] == len(VALUES)
