"""Subscriptions on the deployed stack, from the API to each kind of target."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from penstock import Admin, webhook
from penstock.http.transport import HttpTransport
from penstock_core.push.targets.target import Target, target_to_json
from penstock_core.share.dead_letter import HEADER_PREFIX
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.raw_requests import append, read_all, read_records
from tests.end_to_end.target_resources import TargetResources, number_of
from tests.support.deadlines import until

pytestmark = pytest.mark.stack

SECRET = "whsec_" + "QUFB" * 8
AT_ONCE = {"attempts_max": 2, "backoff_ms_min": 1, "backoff_ms_max": 1, "patience_ms": 0}
POISON = b'{"poison": true}'


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The API of one stack, and a topic whose partition 0 gets all records."""

    transport: HttpTransport
    resources: TargetResources
    topic: str

    def put(self, target: Any, **settings: Any) -> tuple[int, Any]:
        """Status and answer of a PUT of the subscription that has the topic's name."""
        body = json.dumps({"topics": [self.topic], "target": target, "start": "earliest", **settings}).encode()
        answer = self.transport.call("PUT", f"/v1/subscriptions/{self.topic}", {}, {}, body)
        return answer.status, json.loads(answer.body)

    def create(self, target: Target, **settings: Any) -> None:
        """Makes the subscription. The target lets the service in as the first answer says."""
        document = target_to_json(target)
        status, answer = self.put(document, **settings)
        assert (status, answer["error"]["code"]) == (403, "ACCESS_DENIED"), answer
        self.resources.grant(target, answer["error"]["message"])
        status, answer = self.put(document, **settings)
        assert status == 200, answer

    def create_at_once(self, target: Any, **settings: Any) -> None:
        """Makes the subscription of a target that needs no grant."""
        status, answer = self.put(target, **settings)
        assert status == 200, answer

    def append(self, *values: bytes) -> None:
        for value in values:
            append(self.transport, self.topic, value)

    def place(self) -> Any:
        """The state of partition 0."""
        answer = self.transport.call("GET", f"/v1/subscriptions/{self.topic}", {}, {}, b"")
        assert answer.status == 200, answer.body
        return next(each for each in json.loads(answer.body)["partitions"] if each["partition"] == 0)

    def until_delivered(self, offset: int) -> None:
        until(lambda: self.place()["offset"] == offset, shown=self.place)


@pytest.fixture
def subscribed(stack: Stack, transport: HttpTransport, topic: str) -> Iterator[Subscribed]:
    found = Subscribed(transport, TargetResources(stack), topic)
    yield found
    transport.call("DELETE", f"/v1/subscriptions/{topic}", {}, {}, b"")


def values(count: int) -> list[bytes]:
    return [json.dumps({"id": number}).encode() for number in range(count)]


@pytest.mark.parametrize(
    "make",
    [
        lambda resources: resources.function("push-grants", "batch"),
        lambda resources: resources.queue("push-grants"),
        lambda resources: resources.bus("push-grants"),
    ],
    ids=["function", "queue", "bus"],
)
def test_target_lets_the_service_in_as_the_refusal_says(
    subscribed: Subscribed, make: Callable[[TargetResources], Target]
) -> None:
    subscribed.create(make(subscribed.resources))
    assert subscribed.place()["last_result"] == "none"


def test_queue_of_the_service_itself_is_no_target(subscribed: Subscribed, stack: Stack) -> None:
    """The functions may send to it, and the role that delivers may not."""
    urls = stack.root_client("sqs").list_queues()["QueueUrls"]
    [own] = [url for url in urls if "PushDeliveries" in url]
    status, answer = subscribed.put({"sqs": own})
    assert (status, answer["error"]["code"]) == (403, "ACCESS_DENIED"), answer


def test_endpoint_of_another_network_is_no_target(subscribed: Subscribed) -> None:
    status, answer = subscribed.put({"https": {"url": "https://10.0.0.1/in", "secret": SECRET}})
    assert (status, answer["error"]["code"]) == (400, "INVALID_CONFIG"), answer
    assert "private" in answer["error"]["message"]


@dataclass(frozen=True, slots=True)
class Handled:
    """Good records that a function notes in a file, and what it noted."""

    file: Path

    def values(self, ids: Iterable[int]) -> list[bytes]:
        return [json.dumps({"id": each, "handled": str(self.file)}).encode() for each in ids]

    def ids(self) -> list[int]:
        """The ids in the order of their first time."""
        return list(dict.fromkeys(map(int, self.file.read_text().split())))


@pytest.fixture
def handled(tmp_path: Path) -> Handled:
    return Handled(tmp_path / "handled")


def check_dead_letter(subscribed: Subscribed, dead: str) -> None:
    """The poison is in the dead-letter topic once, and says where it comes from and why."""
    [letter] = read_records(subscribed.transport, dead)
    headers = {name.removeprefix(HEADER_PREFIX): value for name, value in letter.headers}
    assert letter.value == POISON
    assert b"poison of None" in (headers["reason"] or b"")
    told = {name: headers[name] for name in ("topic", "partition", "offset", "subscription")}
    name = subscribed.topic.encode()
    assert told == {"topic": name, "partition": b"0", "offset": b"5", "subscription": name}
    assert "group" not in headers


@pytest.mark.parametrize("handler", ["batch", "stream"])
def test_function_handles_all_but_the_poison_which_goes_to_the_dead_letters(
    subscribed: Subscribed, admin: Admin, handled: Handled, handler: str
) -> None:
    dead = f"{subscribed.topic}.dead"
    admin.create_topic(dead, partitions=1)
    subscribed.append(*handled.values(range(5)), POISON, *handled.values(range(6, 10)))
    target = subscribed.resources.function(f"push-{handler}", handler)
    subscribed.create(target, dead_letter_topic=dead, retry=AT_ONCE)
    subscribed.until_delivered(10)
    assert handled.ids() == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    check_dead_letter(subscribed, dead)
    assert subscribed.place()["dead_lettered"] == 1


def test_parallel_function_handles_all_but_the_poison_which_goes_to_the_dead_letters(
    subscribed: Subscribed, admin: Admin, handled: Handled
) -> None:
    dead = f"{subscribed.topic}.dead"
    admin.create_topic(dead, partitions=1)
    subscribed.append(*handled.values(range(5)), POISON, *handled.values(range(6, 10)))
    target = subscribed.resources.function("push-parallel", "stream")
    subscribed.create(target, mode="parallel", batch_records=4, dead_letter_topic=dead, retry=AT_ONCE)
    subscribed.until_delivered(10)
    assert sorted(handled.ids()) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    [letter] = read_records(subscribed.transport, dead)
    assert letter.value == POISON
    assert b"poison of None" in (dict(letter.headers)[f"{HEADER_PREFIX}reason"] or b"")


def test_window_ends_with_a_full_batch(subscribed: Subscribed, handled: Handled) -> None:
    """The window is longer than the test waits."""
    target = subscribed.resources.function("push-window", "stream")
    subscribed.create(target, batch_records=6, batch_window_ms=300_000)
    subscribed.append(*handled.values(range(3)))
    until(lambda: subscribed.place()["next_try_ms"] is not None, shown=subscribed.place)
    subscribed.append(*handled.values(range(3, 6)))
    subscribed.until_delivered(6)
    assert handled.ids() == [*range(6)]


def test_records_that_come_later_start_a_delivery_to_the_queue(subscribed: Subscribed) -> None:
    queue = subscribed.resources.queue("pushed")
    subscribed.create(queue)
    subscribed.append(*values(12))
    messages = subscribed.resources.received(queue, 12)
    assert sorted(number_of(message, "offset") for message in messages) == [*range(12)]
    assert {message["MessageAttributes"]["penstock-topic"]["StringValue"] for message in messages} == {subscribed.topic}
    subscribed.until_delivered(12)


def test_bus_gets_events_that_a_rule_matches(subscribed: Subscribed) -> None:
    bus = subscribed.resources.bus("pushed")
    queue = subscribed.resources.queue_of_rule(bus, {"detail": {"value": {"id": [2]}}}, "second")
    subscribed.create(bus)
    subscribed.append(*values(4))
    [message] = subscribed.resources.received(queue, 1)
    assert json.loads(message["Body"])["detail"]["offset"] == 2
    subscribed.until_delivered(4)


@dataclass(slots=True)
class Receiver:
    """An endpoint that verifies each delivery, and refuses a record once."""

    url: str = ""
    offsets: list[int] = field(default_factory=list)
    refused: int = 3

    def answer(self, headers: Any, body: bytes) -> dict[str, Any]:
        delivery = webhook.verify(SECRET, headers, body)
        for record in delivery.records:
            if record.offset == self.refused:
                self.refused = -1
                return webhook.failure_answer([record])
            self.offsets.append(record.offset)
        return {}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            answer = json.dumps(found.answer(self.headers, body)).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_arguments: Any) -> None:
            """Nothing: the test asserts what came."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_address[1]}/in"
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def test_endpoint_gets_signed_records_in_order_and_a_refused_one_again(
    subscribed: Subscribed, receiver: Receiver
) -> None:
    subscribed.append(*values(6))
    subscribed.create_at_once({"https": {"url": receiver.url, "secret": SECRET}}, retry={"backoff_ms_min": 1})
    subscribed.until_delivered(6)
    assert list(dict.fromkeys(receiver.offsets)) == [*range(6)]


def test_topic_gets_a_copy_of_each_record_once(subscribed: Subscribed, admin: Admin) -> None:
    mirror = f"{subscribed.topic}.mirror"
    admin.create_topic(mirror, partitions=3)
    subscribed.append(*values(6))
    subscribed.create_at_once({"topic": mirror})
    subscribed.until_delivered(6)
    copies = [value for partition in range(3) for _, value in read_all(subscribed.transport, mirror, partition)]
    assert sorted(value for value in copies if value is not None) == values(6)
