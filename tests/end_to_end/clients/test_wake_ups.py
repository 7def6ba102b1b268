"""Wake-ups on the deployed stack: a reader on the WebSocket hears of the append that it waits for."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
import urllib3

from localstack.clients import ACCOUNT
from penstock import Producer
from penstock.http.http_message import Response
from penstock.http.transport import HttpTransport
from penstock_core.limits import WAKE_UP_PARTITIONS_MAX
from penstock_core.records import frame
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.raw_requests import append, storage_calls
from tests.end_to_end.wake_up_reader import signed_headers, wake_up_reader

pytestmark = pytest.mark.stack
T = TypeVar("T")


def _place(transport: HttpTransport) -> dict[str, str]:
    answer = transport.call("GET", "/v1/wake-ups", {}, {}, b"")
    assert answer.status == 200, answer.body
    place: dict[str, str] = json.loads(answer.body)
    return place


def _wait_for(transport: HttpTransport, topic: str, *offsets: int) -> tuple[Response, list[dict[str, Any]]]:
    """A fetch that arms: partition 0 from the first offset on, partition 1 from the second, and so on."""
    wanted = [{"topic": topic, "partition": partition, "offset": offset} for partition, offset in enumerate(offsets)]
    answer = transport.call("POST", "/v1/fetch", {}, {}, json.dumps({"partitions": wanted, "arm": True}).encode())
    assert answer.status == 200, answer.body
    header, _ = frame.decode(answer.body)
    results: Any = header["partitions"]
    return answer, results


def _aside(call: Callable[..., T], *arguments: Any) -> "asyncio.Future[T]":
    return asyncio.get_running_loop().run_in_executor(None, call, *arguments)


def test_append_wakes_the_readers_that_have_armed(stack: Stack, transport: HttpTransport, topic: str) -> None:
    async def run() -> None:
        place = _place(transport)
        assert place["namespace"] == "wake"
        _, results = await _aside(_wait_for, transport, topic, 0, 0, 0)
        topic_id = results[0]["topic_id"]
        channel = f"/wake/{topic_id}/0"
        async with wake_up_reader(stack, place) as reader, wake_up_reader(stack, place) as other:
            for each in (reader, other):
                await each.subscribe(channel)
            answer, results = await _aside(_wait_for, transport, topic, 0, 0, 0)
            assert [each["armed"] for each in results] == [True] * 3
            assert storage_calls(answer) == {"dynamodb.BatchGetItem": 1}, "the first fetch has armed the heads"
            await _aside(append, transport, topic, b"v")
            event = {"topic_id": topic_id, "partition": 0, "next_offset": 1}
            assert await reader.event() == await other.event() == (channel, event)
            answer, results = await _aside(_wait_for, transport, topic, 1)
            assert results[0]["armed"]
            calls = storage_calls(answer)
            assert calls.keys() == {"dynamodb.GetItem", "dynamodb.UpdateItem"}
            assert calls["dynamodb.UpdateItem"] == 1

    asyncio.run(run())


def test_rights_on_wake_ups_name_the_namespace_and_nothing_below_it(
    stack: Stack, transport: HttpTransport, topic: str
) -> None:
    """As on AWS, which has no resource for a channel. A reader with a right on one connects, and is told no record."""
    place = _place(transport)
    api_id, region = place["host"].split(".")[0], stack.region
    api = f"arn:aws:appsync:{region}:{ACCOUNT}:apis/{api_id}"
    namespace = f"{api}/channelNamespace/{place['namespace']}"

    async def answer(name: str, resource: str) -> str:
        statements = [
            {"Effect": "Allow", "Action": "appsync:EventConnect", "Resource": api},
            {"Effect": "Allow", "Action": "appsync:EventSubscribe", "Resource": resource},
        ]
        keys = stack.create_user(name, {"Version": "2012-10-17", "Statement": statements})
        other = replace(stack, access_key_id=keys[0], secret_access_key=keys[1])
        body = json.dumps({"channel": "/wake/topic/0", "events": ["{}"]})
        headers = signed_headers(other, place["host"], body)
        published = urllib3.request("POST", f"{stack.endpoint_url}/event", body=body, headers=headers, retries=False)
        assert published.status in (401, 403)  # whoever is woken may not wake
        async with wake_up_reader(other, place) as reader:
            return await reader.answer_to("/wake/topic/0")

    assert asyncio.run(answer("woken-by-channels", f"{namespace}/*")) == "subscribe_error"
    assert asyncio.run(answer("woken", namespace)) == "subscribe_success"


def test_append_that_nobody_waits_for_makes_no_further_call(transport: HttpTransport, topic: str) -> None:
    append(transport, topic, b"warm")
    answer, _ = append(transport, topic, b"v")
    assert _table_calls(answer) == {"dynamodb.UpdateItem": 1}
    _wait_for(transport, topic, 2)
    answer, _ = append(transport, topic, b"v")
    assert _table_calls(answer) == {"dynamodb.UpdateItem": 1}, "the same update tells whom to wake"


def _table_calls(answer: Response) -> dict[str, int]:
    return {name: count for name, count in storage_calls(answer).items() if name.startswith("dynamodb.")}


def test_one_message_wakes_the_readers_of_many_partitions(stack: Stack, transport: HttpTransport, topic: str) -> None:
    count = WAKE_UP_PARTITIONS_MAX + 1
    created = transport.call(
        "PATCH", f"/v1/topics/{topic}", {}, {"Content-Type": "application/json"}, b'{"partitions": %d}' % count
    )
    topic_id = json.loads(created.body)["topic_id"]

    def send_to_all() -> None:
        with Producer(transport=stack.transport(), linger_ms=200) as producer:
            for partition in range(count):
                producer.send(topic, b"v", partition=partition)
            producer.flush()

    async def run() -> None:
        async with wake_up_reader(stack, _place(transport)) as reader:
            await reader.subscribe(f"/wake/{topic_id}/all")
            await _aside(_wait_for, transport, topic, *[0] * count)
            await _aside(send_to_all)
            _, event = await reader.event()
            assert event == {"topic_id": topic_id, "partitions": {str(number): 1 for number in range(count)}}

    asyncio.run(run())
