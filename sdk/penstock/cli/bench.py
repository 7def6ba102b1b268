"""`penstock bench`: figures of your own stage, by this machine's producers and a consumer.

The command makes a topic, fills it and reads it at once, and deletes it. It stops early at its bound of bytes or of
dollars, and at INT or TERM. A topic that a killed run leaves behind keeps its records for an hour.
"""

import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import click

from penstock.admin.admin import Admin
from penstock.cli.options.settings import SIZE
from penstock.cli.options.times import Duration
from penstock.cli.service import Service, service_command
from penstock.consumer.consumer import Consumer
from penstock.cost.counted import PROFILES, counted
from penstock.cost.estimate import priced
from penstock.http.abilities import event_signer, request_bytes_max_of
from penstock.http.http_message import Response
from penstock.http.named_transport import TransportName, chosen_name
from penstock.http.transport import Transport
from penstock.model import RecordMetadata
from penstock.prices import DATE, REGION
from penstock.producer.producer import Producer
from penstock.system import monotonic_ms, new_nonce, random_bytes, wall_clock_ns
from penstock.workers.signals import stopped_by_signals
from penstock_core.errors import PenstockError
from penstock_core.limits import KIB, MIB

TOPIC_PREFIX = "penstock-bench-"
_RETENTION_MS = 3_600_000
_STAMP_BYTES = 8  # a record begins with the time of its send
_SECONDS_MIN = 0.1
_DURATION = Duration(has_forever=False, ms_max=3_600_000)
_RECORD_BYTES_MAX = 768 * KIB  # one record in a batch of the topic's default
_BUFFER_BYTES = MIB  # of a producer: what waits in it at the stop is still sent, and paid for
_POOL_BYTES = 4 * MIB  # of random bytes, longer than any batch: no record repeats another one of its batch
_DRAIN_MS = 30_000  # the consumer has so long for the records that are stored when the producers end
_CHECK_S = 0.1
_NS_PER_MS = 1_000_000
_PERCENTILES = (50, 99)


@dataclass(slots=True)
class Latencies:
    """Milliseconds, kept by their first three digits, so that a long run takes no more memory."""

    counts: Counter[float] = field(default_factory=Counter)

    def add(self, ms: float) -> None:
        """One latency."""
        self.counts[float(f"{max(ms, 0.0):.3g}")] += 1

    def percentile(self, percent: float) -> float | None:
        """The latency that so many percent do not exceed. None without any."""
        left = self.counts.total() * percent / 100
        for ms, count in sorted(self.counts.items()):
            left -= count
            if left <= 0:
                return ms
        return None


@dataclass(slots=True)
class Way:
    """What went one way, and how long each record took from its send."""

    records: int = 0
    last_ms: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    def add(self, sent_ms: float) -> None:
        """One record that arrived now."""
        self.records += 1
        self.last_ms = monotonic_ms()
        self.latencies.add(wall_clock_ns() / _NS_PER_MS - sent_ms)

    def to_json(self, record_bytes: int, began_ms: int) -> dict[str, Any]:
        """Rates from the begin of the run to the last record."""
        seconds = max(0.001, (self.last_ms - began_ms) / 1_000)
        found: dict[str, Any] = {
            "records": self.records,
            "records_per_s": self.records / seconds,
            "megabytes_per_s": self.records * record_bytes / seconds / 1e6,
        }
        return found | {f"p{each}_ms": self.latencies.percentile(each) for each in _PERCENTILES}


class MeteredTransport:
    """A Transport that counts the requests and the bytes that go through it, by kind: produce, fetch and other."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.request_bytes_max = request_bytes_max_of(inner)

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Send the request."""
        kind = {"/v1/produce": "produce", "/v1/fetch": "fetch"}.get(path, "other")
        answer = self._inner.call(method, path, query, headers, body)
        with self._lock:
            self.requests[kind] += 1
            self.bytes[kind] += len(body) if kind == "produce" else len(answer.body)
        return answer

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """Signed headers for wake-ups. Raises NotConfiguredError if the transport behind it cannot sign them."""
        return event_signer(self._inner).event_headers(host, body)

    def close(self) -> None:
        """Leave the transport open: the command deletes the topic by it."""

    def usd(self, profile: str, transport: TransportName) -> float:
        """The price of the requests so far, by the counts of `penstock cost`. Other requests count as small fetches."""
        prices = counted(profile, transport)
        produced, fetched, other = (self.requests[each] for each in ("produce", "fetch", "other"))
        found = [(prices.fetch(KIB), other)]
        if produced:
            found.append((prices.append(self.bytes["produce"] / produced), produced))
        if fetched:
            found.append((prices.fetch(self.bytes["fetch"] / fetched, max(1.0, produced / fetched)), fetched))
        lines = [priced("bench", {name: value * times for name, value in counts.items()}) for counts, times in found]
        return sum(line.usd for each in lines for line in each)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchLoad:
    """What a run does. `rate` is that of all producers together, None for as fast as they can."""

    seconds: float
    record_bytes: int
    rate: float | None
    producers: int
    partitions: int
    bytes_max: int
    dollars_max: float
    profile: str
    transport: TransportName


class BenchRun:
    """One run on a topic that is there and empty. `stopped_by` says what ended it early: bytes, dollars or signal."""

    def __init__(self, transport: Transport, topic: str, load: BenchLoad) -> None:
        self._metered = MeteredTransport(transport)
        self._topic = topic
        self._load = load
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._stored, self._polled, self._sent = Way(), Way(), 0
        self._errors: Counter[str] = Counter()
        self._pool = random_bytes(_POOL_BYTES)
        self.stopped_by: str | None = None

    def stop(self, why: str = "signal") -> None:
        """End the producers. Signal handlers call it."""
        self.stopped_by = self.stopped_by or why
        self._stop.set()

    def run(self) -> dict[str, Any]:
        """Send for the time of the load, read all that was stored, and give the figures."""
        began_ms = monotonic_ms()
        ends_ms = began_ms + round(self._load.seconds * 1_000)
        threads = [threading.Thread(target=self._produce, args=(ends_ms,)) for _ in range(self._load.producers)]
        done = threading.Event()
        reader = threading.Thread(target=self._consume, args=(done,))
        try:
            for each in (reader, *threads):
                each.start()
            while any(each.is_alive() for each in threads):
                self._stop.wait(_CHECK_S)
                self._check_bounds()
                threads[0].join(_CHECK_S)
        finally:
            self._stop.set()
            for each in threads:
                each.join()
            done.set()
            reader.join()
        return self._figures(began_ms)

    def _check_bounds(self) -> None:
        if self._sent * self._load.record_bytes >= self._load.bytes_max:
            self.stop("bytes")
        elif self._metered.usd(self._load.profile, self._load.transport) >= self._load.dollars_max:
            self.stop("dollars")

    def _produce(self, ends_ms: int) -> None:
        """Send at this producer's share of the rate. An error of a send ends the thread, one of a delivery does not."""
        try:
            with Producer(transport=self._metered, on_delivery=self._delivered, buffer_bytes=_BUFFER_BYTES) as producer:
                for value in self._values(ends_ms):
                    producer.send(self._topic, value)
        except PenstockError as error:
            self._note(error)

    def _values(self, ends_ms: int) -> Iterator[bytes]:
        began_ms, sent, at = monotonic_ms(), 0, 0
        body = self._load.record_bytes - _STAMP_BYTES
        share = None if self._load.rate is None else self._load.rate / self._load.producers
        while not self._stop.is_set() and (now_ms := monotonic_ms()) < ends_ms:
            if share is not None and sent >= share * (now_ms - began_ms + 1) / 1_000:
                self._stop.wait(min(1 / share, 0.05))
                continue
            at = at + body if at + 2 * body <= _POOL_BYTES else 0
            sent += 1
            if not self._count_sent():
                return
            yield wall_clock_ns().to_bytes(_STAMP_BYTES, "big") + self._pool[at : at + body]

    def _count_sent(self) -> bool:
        """False at the bound of bytes."""
        with self._lock:
            if (self._sent + 1) * self._load.record_bytes > self._load.bytes_max:
                self.stop("bytes")
                return False
            self._sent += 1
            return True

    def _delivered(self, error: PenstockError | None, metadata: RecordMetadata) -> None:
        if error is not None:
            self._note(error)
            return
        with self._lock:
            self._stored.add(metadata.timestamp_ms)

    def _consume(self, done: threading.Event) -> None:
        """Poll until the producers have ended and all that they stored has come, or the time for that is over."""
        ends_ms: int | None = None
        try:
            with Consumer(transport=self._metered, auto_offset_reset="earliest") as consumer:
                consumer.assign(Admin(transport=self._metered).partitions([self._topic]))
                while not (done.is_set() and self._polled.records >= self._stored.records):
                    ends_ms = monotonic_ms() + _DRAIN_MS if done.is_set() and ends_ms is None else ends_ms
                    if ends_ms is not None and monotonic_ms() >= ends_ms:
                        return
                    for record in consumer.poll(timeout_ms=200):
                        self._polled.add(int.from_bytes((record.value or b"")[:_STAMP_BYTES], "big") / _NS_PER_MS)
        except PenstockError as error:
            self._note(error)
            self.stop("error")

    def _note(self, error: PenstockError) -> None:
        with self._lock:
            self._errors[f"{error.to_json()['code']}: {error.message}"[:200]] += 1

    def _figures(self, began_ms: int) -> dict[str, Any]:
        load = self._load
        return {
            "load": {name: value for name, value in asdict(load).items() if name != "transport"},
            "stopped_by": self.stopped_by,
            "stored": self._stored.to_json(load.record_bytes, began_ms),
            "polled": self._polled.to_json(load.record_bytes, began_ms),
            "requests": {each: self._metered.requests[each] for each in ("produce", "fetch", "other")},
            "errors": dict(self._errors),
            "usd": self._metered.usd(load.profile, load.transport),
            "prices": {"region": REGION, "date": DATE},
        }


@click.command()
@click.option("--seconds", type=_DURATION, default="10s", show_default=True, help="Send so long, such as 30s or 2m.")
@click.option("--record-bytes", type=SIZE, default="1KiB", show_default=True, help="Size of a record, 16 at least.")
@click.option("--rate", type=click.FloatRange(0.1, 1e7), help="Records a second in all; else as fast as it goes.")
@click.option("--producers", type=click.IntRange(1, 64), default=1, show_default=True, help="Producers, a thread each.")
@click.option("--partitions", type=click.IntRange(1, 100), default=6, show_default=True, help="Of the topic.")
@click.option("--bytes-max", type=SIZE, default="1024MiB", show_default=True, help="Send no more than this.")
@click.option("--dollars-max", type=click.FloatRange(0.001), default=0.25, show_default=True, help="Spend no more.")
@click.option("--profile", type=click.Choice(PROFILES), default="express3", show_default=True, help="For the price.")
@service_command
def bench(service: Service, seconds: int, **options: Any) -> None:
    """Measure throughput and latency of your stage from this machine, on a topic of its own.

    It sends and reads at the same time, counts requests, and prices them. It deletes the topic, also after Ctrl-C. A
    latency counts from `send`. Without --rate it tells how long the queues in the producer are: give a rate to see the
    service's. A producer holds 1 MiB at most, so that a stop is quick: for the most your stage takes, raise
    --producers. The price is an estimate by `penstock cost`'s table, and `penstock dev` costs nothing.

    For example: penstock bench --seconds 30 --rate 1000
    """
    load = BenchLoad(seconds=seconds / 1_000, **options, transport=chosen_name(service.transport_name, None))
    _check(load)
    topic = TOPIC_PREFIX + new_nonce()[:12]
    run = BenchRun(service.transport, topic, load)
    with stopped_by_signals(run.stop), _topic(service, topic, load.partitions):
        if not service.as_json:
            click.echo(f"{load.seconds:g} s on topic {topic}; Ctrl-C ends it", err=True)
        found = run.run()
    _show(service, load, found)
    if found["errors"] or found["polled"]["records"] < found["stored"]["records"]:
        sys.exit(1)


def _check(load: BenchLoad) -> None:
    """Raises UsageError for a load that its own bounds would end early."""
    if not 2 * _STAMP_BYTES <= load.record_bytes <= _RECORD_BYTES_MAX:
        raise click.BadParameter(
            f"{load.record_bytes}: give {2 * _STAMP_BYTES} to {_RECORD_BYTES_MAX:,} bytes", param_hint="--record-bytes"
        )
    if load.seconds < _SECONDS_MIN:
        raise click.BadParameter(f"{load.seconds:g} s: give {_SECONDS_MIN} s at least", param_hint="--seconds")
    wanted = 0 if load.rate is None else load.rate * load.seconds * load.record_bytes
    if wanted > load.bytes_max:
        raise click.UsageError(
            f"--rate {load.rate:g} for {load.seconds:g} s is {wanted / 1e6:,.0f} MB, above --bytes-max "
            f"{load.bytes_max / 1e6:,.0f} MB: raise it, or send less"
        )


@contextmanager
def _topic(service: Service, name: str, partitions: int) -> Iterator[None]:
    """A topic that is there meanwhile."""
    admin = Admin(transport=service.transport)
    admin.create_topic(name, partitions, {"retention_ms": _RETENTION_MS})
    try:
        yield
    finally:
        try:
            admin.delete_topic(name)
        except PenstockError as error:
            click.echo(f"topic {name} is still there ({error}): penstock topics delete {name} --yes", err=True)


def _show(service: Service, load: BenchLoad, found: Mapping[str, Any]) -> None:
    requests = found["requests"]
    service.show(
        found,
        title=f"{load.producers} producer{'s' if load.producers > 1 else ''}, records of {load.record_bytes:,} bytes, "
        + ("as fast as it goes" if load.rate is None else f"{load.rate:,g} records/s"),
        columns=("way", "records", "records/s", "MB/s", "p50 ms", "p99 ms", "requests"),
        rows=[
            (
                name,
                f"{way['records']:,}",
                f"{way['records_per_s']:,.0f}",
                f"{way['megabytes_per_s']:,.2f}",
                *(None if way[f"p{each}_ms"] is None else f"{way[f'p{each}_ms']:,g}" for each in _PERCENTILES),
                f"{count:,}",
            )
            for name, way, count in (
                ("send to stored", found["stored"], requests["produce"]),
                ("send to polled", found["polled"], requests["fetch"]),
            )
        ],
    )
    if service.as_json:
        return
    service.say(None, f"about ${found['usd']:.2g} on AWS ({load.profile}, list prices of {DATE})")
    if found["stopped_by"]:
        bounds = {"bytes": f"--bytes-max {load.bytes_max:,}", "dollars": f"--dollars-max {load.dollars_max:g}"}
        service.say(None, f"it was ended early by {bounds.get(found['stopped_by'], found['stopped_by'])}")
    for message, count in found["errors"].items():
        service.say(None, f"{count:,} times {message}")
