"""Penstock by its SDK, with its defaults but for compression: random values would not shrink."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from bench.meters.counting import CountingTransport
from bench.rivals.rival import Seat
from penstock import Admin, Consumer, Producer, TopicPartition
from penstock.configuration import Configuration, find_configuration
from penstock.http.named_transport import HTTP, TransportName, module_of
from penstock.http.transport import HttpTransport, Transport

PARTITIONS = 4
_POLL_RECORDS = 10_000  # as many as one GetRecords of Kinesis


@dataclass(frozen=True, slots=True, kw_only=True)
class PenstockSdk:
    """A topic of the local stack. `carrier` is the name of the transport."""

    port: int
    topic: str = ""
    name: str = "Penstock"
    threads: tuple[int, ...] = (1,)
    carrier: TransportName = HTTP

    def make(self) -> None:
        with Admin(transport=self.transport()) as admin:
            admin.create_topic(self.topic, partitions=PARTITIONS)

    def drop(self) -> None:
        with Admin(transport=self.transport()) as admin:
            admin.delete_topic(self.topic)

    def renamed(self, topic: str) -> "PenstockSdk":
        return replace(self, topic=topic)

    def through(self, port: int) -> "PenstockSdk":
        return replace(self, port=port)

    def connect(self, seat: Seat) -> "PenstockClient":
        return PenstockClient(self, seat)

    def transport(self) -> CountingTransport:
        """The configured service, by HTTP at this rival's port."""
        return CountingTransport(
            self._over_http() if self.carrier == HTTP else module_of(self.carrier).open_transport()
        )

    def _over_http(self) -> Transport:
        found = find_configuration()
        url = urlsplit(found.url)._replace(netloc=f"127.0.0.1:{self.port}").geturl()
        return HttpTransport(Configuration(url=url, region=found.region, credentials=found.credentials))


class PenstockClient:
    """A producer, and a consumer that begins with the first `receive`."""

    chunk = 500

    def __init__(self, rival: PenstockSdk, seat: Seat) -> None:
        self._topic = rival.topic
        self._transport = rival.transport()
        linger = {"linger_ms": 0} if seat.is_prompt else {}
        self._producer = Producer(transport=self._transport, compression_type="none", **linger)  # type: ignore[arg-type]
        self._consumer = Consumer(transport=self._transport, max_poll_records=_POLL_RECORDS)
        self._partitions = [TopicPartition(rival.topic, each) for each in range(PARTITIONS)][seat.number :: seat.of]
        self._is_reading = False

    @property
    def calls(self) -> int:
        return self._transport.total().requests

    def send(self, values: Sequence[bytes]) -> None:
        for value in values:
            self._producer.send(self._topic, value)

    def flush(self) -> None:
        self._producer.flush()

    def receive(self) -> int:
        if not self._is_reading:
            self._consumer.assign(self._partitions)
            self._is_reading = True
        return len(self._consumer.poll(timeout_ms=500))

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()
