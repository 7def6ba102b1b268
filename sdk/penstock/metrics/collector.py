"""Reads how much topics hold, and how far consumers are behind, within a bound of requests.

A reading costs one request for each page of the lists, and one for each topic and consumer. Consumers come first. When
the bound is reached, the reading ends: `penstock_reading_complete` is 0 then, and the next reading begins where this
one ended. Consumers and topics that a reading leaves out keep the values of the reading before. A kind that the caller
may not list has no values.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.admin.admin import Admin
from penstock.admin.partition_change import stored_bytes_of
from penstock.errors import AccessDeniedError, NotFoundError
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.metrics.exposition import Family, Sample, exposition
from penstock.model import Topic
from penstock.model.push import MirroredTopic, mirrored_topics
from penstock.system import monotonic_ms
from penstock_core.errors import PenstockError
from penstock_core.limits import SDK_METRICS_INTERVAL_MS, SDK_METRICS_REQUESTS_MAX

GROUP, SHARE_GROUP, SUBSCRIPTION, TOPIC = "group", "share_group", "subscription", "topic"


class CountedTransport:
    """A Transport that counts the requests that go through it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.requests = 0

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Sends the request."""
        self.requests += 1
        return self._transport.call(method, path, query, headers, body)

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLag:
    """The records of one topic that a consumer has not finished, and the age of the oldest, 0 if there are none.

    `in_flight` of them are locked by the consumers of a share group.
    """

    records: int = 0
    oldest_age_ms: int = 0
    in_flight: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The records that a consumer has not finished, by topic.

    A group has `members`, and committed last at `committed_at_ms`, 0 for never. `state` is that of a subscription, and
    `mirrored` has the topics of one that is a mirror.
    """

    by_topic: Mapping[str, TopicLag]
    members: int = 0
    committed_at_ms: int = 0
    state: str = ""
    mirrored: Sequence[MirroredTopic] = ()

    @property
    def records(self) -> int:
        """The records of all topics."""
        return sum(each.records for each in self.by_topic.values())

    @property
    def in_flight(self) -> int:
        """The locked ones among them."""
        return sum(each.in_flight for each in self.by_topic.values())

    @property
    def oldest_age_ms(self) -> int:
        """The age of the oldest of them, 0 if there are none."""
        return max((each.oldest_age_ms for each in self.by_topic.values()), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicExtent:
    """A topic's partitions, the records ever appended to it, and those that it holds. Offsets count as records.

    `stored_bytes` are the bytes of those that it holds, None for a service that does not tell them. `ends` has the end
    of each partition that takes new records.
    """

    partitions: int
    appended: int
    held: int
    ends: Mapping[int, int]
    stored_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The value of a consumer or topic, and when it was read."""

    kind: str
    name: str
    value: Lag | TopicExtent
    read_at_ms: int


class Collector:
    """The figures of one service as values and as Prometheus' text. Several threads may use one Collector.

    It reads the service at most once in `interval_ms`, whoever asks, and sends `requests_max` requests for one reading,
    and those of the call that reaches the bound.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        interval_ms: int = SDK_METRICS_INTERVAL_MS,
        requests_max: int = SDK_METRICS_REQUESTS_MAX,
        clock_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._transport = CountedTransport(transport)
        self._admin = Admin(transport=self._transport)
        self._interval_ms = interval_ms
        self._requests_max = requests_max
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._read_ms: int | None = None
        self._found: dict[tuple[str, str], Lag | TopicExtent] = {}
        self._found_at_ms: dict[tuple[str, str], int] = {}
        self._after: tuple[str, str] | None = None
        self._topics: Sequence[Topic] = ()
        self._text = ""

    def text(self) -> str:
        """The figures, read anew if the last reading is old. Raises the classes of penstock.errors."""
        with self._lock:
            if self._read_ms is None or self._clock_ms() - self._read_ms >= self._interval_ms:
                self._read()
            return self._text

    def figures(self) -> Sequence[Figure]:
        """The figures as values, read anew now. Raises the classes of penstock.errors."""
        with self._lock:
            self._read()
            return [
                Figure(kind=kind, name=name, value=value, read_at_ms=self._found_at_ms[kind, name])
                for (kind, name), value in sorted(self._found.items())
            ]

    @property
    def is_complete(self) -> bool:
        """The last reading has read all of it."""
        return self._after is None

    def _read(self) -> None:
        began_ms = self._clock_ms()
        ends_at = self._transport.requests + self._requests_max
        began_at = self._transport.requests
        names = [*self._names()]
        listed = set(names)
        self._found = {name: value for name, value in self._found.items() if name in listed}
        start = next((at + 1 for at, name in enumerate(names) if name == self._after), 0)
        self._after = None
        ahead = [*names[start:], *names[:start]]
        for at, name in enumerate(ahead):
            try:
                self._found[name] = self._describe(*name)
                self._found_at_ms[name] = self._clock_ms()
            except NotFoundError:  # it was deleted since
                self._found.pop(name, None)
            if self._transport.requests >= ends_at and at + 1 < len(ahead):
                self._after = name
                break
        self._text = exposition(self._families(self._transport.requests - began_at))
        self._read_ms = began_ms

    def _names(self) -> Iterator[tuple[str, str]]:
        """All consumers and topics that the caller may list. Raises the first refusal if that is no kind of them."""
        lists: tuple[tuple[str, Callable[[], list[str]]], ...] = (
            (GROUP, lambda: [each.group for each in self._admin.list_groups()]),
            (SHARE_GROUP, lambda: [each.group for each in self._admin.list_share_groups()]),
            (SUBSCRIPTION, lambda: [each.name for each in self._admin.list_subscriptions()]),
            (TOPIC, self._topic_names),
        )
        refused: list[PenstockError] = []
        for kind, names in lists:
            try:
                yield from ((kind, name) for name in names())
            except (AccessDeniedError, NotFoundError) as error:  # the API for tokens has no subscriptions
                refused.append(error)
        if len(refused) == len(lists):
            raise refused[0]

    def _topic_names(self) -> list[str]:
        self._topics = self._admin.list_topics()
        return [each.name for each in self._topics]

    def _describe(self, kind: str, name: str) -> Lag | TopicExtent:
        if kind == TOPIC:
            offsets = self._admin.describe_topic(name).offsets
            return TopicExtent(
                partitions=len(offsets),
                appended=sum(each.high_watermark for each in offsets),
                held=sum(each.high_watermark - each.log_start_offset for each in offsets),
                ends={each.partition: each.high_watermark for each in offsets if each.state == "active"},
                stored_bytes=stored_bytes_of(offsets),
            )
        if kind == GROUP:
            group = self._admin.describe_group(name)
            return Lag(
                by_topic=_by_topic((each.topic, each.lag, each.oldest_age_ms, 0) for each in group.partitions),
                members=len(group.members),
                committed_at_ms=max((each.committed_at_ms for each in group.partitions), default=0),
            )
        if kind == SHARE_GROUP:
            partitions = self._admin.describe_share_group(name).partitions
            return Lag(
                by_topic=_by_topic((each.topic, each.lag, each.oldest_age_ms, each.in_flight) for each in partitions)
            )
        found = self._admin.describe_subscription(name)
        return Lag(
            by_topic=_by_topic((each.topic, each.lag, each.oldest_age_ms, 0) for each in found.partitions),
            state=found.subscription.state,
            mirrored=mirrored_topics(found, self._topics),
        )

    def _families(self, requests: int) -> Sequence[Family]:
        lags = [(name, each) for name, each in sorted(self._found.items()) if isinstance(each, Lag)]
        topics = [(name, each) for name, each in sorted(self._found.items()) if isinstance(each, TopicExtent)]

        def consumers(value: Callable[[Lag], float]) -> list[Sample]:
            return [Sample(value=value(each), labels={"kind": kind, "consumer": name}) for (kind, name), each in lags]

        def by_topic(value: Callable[[TopicExtent], float | None]) -> list[Sample]:
            told = [(name, value(each)) for (_, name), each in topics]
            return [Sample(value=figure, labels={"topic": name}) for name, figure in told if figure is not None]

        return (
            Family(
                name="penstock_consumer_oldest_age_seconds",
                kind="gauge",
                help="Time since the append of the oldest record that the consumer has not finished.",
                samples=consumers(lambda each: each.oldest_age_ms / 1_000),
            ),
            Family(
                name="penstock_consumer_lag_records",
                kind="gauge",
                help="Records that the consumer has not finished.",
                samples=consumers(lambda each: each.records),
            ),
            *_mirror_families(lags),
            Family(
                name="penstock_topic_appended_records_total",
                kind="counter",
                help="Records that were ever appended to the topic.",
                samples=by_topic(lambda each: each.appended),
            ),
            Family(
                name="penstock_topic_held_records",
                kind="gauge",
                help="Records that the topic holds.",
                samples=by_topic(lambda each: each.held),
            ),
            Family(
                name="penstock_topic_stored_bytes",
                kind="gauge",
                help="Bytes of the records that the topic holds, one copy of each; an estimate after retention.",
                samples=by_topic(lambda each: each.stored_bytes),
            ),
            Family(
                name="penstock_topic_partitions",
                kind="gauge",
                help="Partitions of the topic.",
                samples=by_topic(lambda each: each.partitions),
            ),
            Family(
                name="penstock_reading_requests",
                kind="gauge",
                help="Requests that the last reading has sent.",
                samples=[Sample(value=requests)],
            ),
            Family(
                name="penstock_reading_complete",
                kind="gauge",
                help="1 if the last reading has read all of it, 0 if it has reached its bound of requests.",
                samples=[Sample(value=int(self._after is None))],
            ),
        )


def _mirror_families(lags: Iterable[tuple[tuple[str, str], Lag]]) -> Sequence[Family]:
    mirrored = [(each, {"consumer": name, "topic": each.topic}) for (_, name), lag in lags for each in lag.mirrored]
    return (
        Family(
            name="penstock_mirror_success_timestamp_seconds",
            kind="gauge",
            help="Unix time at which the mirror of the topic took records last.",
            samples=[
                Sample(value=each.succeeded_ms / 1_000, labels=labels)
                for each, labels in mirrored
                if each.succeeded_ms is not None
            ],
        ),
        Family(
            name="penstock_mirror_epoch",
            kind="gauge",
            help="Number of the topic's last move to its mirror, 0 if it was never moved.",
            samples=[Sample(value=each.epoch, labels=labels) for each, labels in mirrored],
        ),
    )


def _by_topic(partitions: Iterable[tuple[str, int | None, int | None, int]]) -> Mapping[str, TopicLag]:
    """The sums of each topic over its partitions: records, age of the oldest, records in flight."""
    found: dict[str, TopicLag] = {}
    for topic, records, age_ms, in_flight in partitions:
        seen = found.get(topic) or TopicLag()
        found[topic] = TopicLag(
            records=seen.records + (records or 0),
            oldest_age_ms=max(seen.oldest_age_ms, age_ms or 0),
            in_flight=seen.in_flight + in_flight,
        )
    return found
