"""The overview's figures: what each topic gets, and how far each consumer is behind."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.api.topic_heat import hot_partitions
from penstock.console.background import Background, Look
from penstock.http.transport import Transport
from penstock.metrics.collector import GROUP, Collector, CountedTransport, Lag, TopicExtent
from penstock.system import monotonic_ms, wall_clock_ms
from penstock_core.limits import (
    CONSOLE_ABANDONED_MS,
    CONSOLE_FIGURES_MS_MIN,
    CONSOLE_FIGURES_REQUESTS_FEW,
    CONSOLE_SERIES_MAX,
    CONSOLE_SERIES_POINTS_MAX,
    SDK_METRICS_INTERVAL_MS,
)


class Point(NamedTuple):
    """The records that came in a second before a reading, and those that the topic's consumers had not finished."""

    at_ms: int
    rate: float
    behind: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFigure:
    """A topic's records, and those that came in a second between the last two readings, None before the second.

    `hot` has the partitions that got far more of these than the others did, the hottest first. `series` has the last
    readings, the oldest first. Abandoned groups are not in it.
    """

    name: str
    held: int
    rate: float | None
    hot: Sequence[int] = ()
    series: Sequence[Point] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFigure:
    """A consumer of a kind (group, share_group or subscription), and what it has not finished.

    An abandoned group has no member, and did not commit for a day.
    """

    kind: str
    name: str
    lag: Lag
    is_abandoned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All figures of one reading, or as many as its bound of requests allowed."""

    topics: Sequence[TopicFigure]
    consumers: Sequence[ConsumerFigure]
    is_complete: bool

    @property
    def rate(self) -> float | None:
        """The records of all topics in a second."""
        known = [each.rate for each in self.topics if each.rate is not None]
        return sum(known) if known else None

    @property
    def records_behind(self) -> int:
        """The records that consumers have not finished, without abandoned groups."""
        return sum(each.lag.records for each in self.consumers if not each.is_abandoned)

    @property
    def behind(self) -> Sequence[ConsumerFigure]:
        """The consumers with something to do, the one with the oldest record first, without abandoned groups."""
        return _furthest_first(each for each in self.consumers if not each.is_abandoned)

    @property
    def abandoned(self) -> Sequence[ConsumerFigure]:
        """The abandoned groups that left records, the one with the oldest record first."""
        return _furthest_first(each for each in self.consumers if each.is_abandoned)

    def topic(self, name: str) -> TopicFigure | None:
        """The figures of a topic; None if no reading has come to it."""
        return next((each for each in self.topics if each.name == name), None)

    def consumer(self, kind: str, name: str) -> ConsumerFigure | None:
        """A consumer; None if no reading has come to it."""
        return next((each for each in self.consumers if (each.kind, each.name) == (kind, name)), None)

    def readers_of(self, topic: str) -> Sequence[ConsumerFigure]:
        """The consumers of a topic, the one with its oldest record first, abandoned groups last."""
        found = [each for each in self.consumers if topic in each.lag.by_topic]

        def order(each: ConsumerFigure) -> tuple[object, ...]:
            lag = each.lag.by_topic[topic]
            return each.is_abandoned, -lag.oldest_age_ms, -lag.records, each.kind, each.name

        return sorted(found, key=order)

    @property
    def busiest(self) -> Sequence[TopicFigure]:
        """The topics that get records, the one that gets most first."""
        return sorted((each for each in self.topics if each.rate), key=lambda each: (-(each.rate or 0), each.name))

    @property
    def hot(self) -> Sequence[TopicFigure]:
        """The topics with hot partitions, the one that gets most records first."""
        return [each for each in self.busiest if each.hot]


class Figures:
    """Reads the figures of one service when somebody looks."""

    def __init__(
        self,
        transport: Transport,
        *,
        clock_ms: Callable[[], int] = monotonic_ms,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._transport = CountedTransport(transport)
        self.collector = Collector(self._transport, clock_ms=clock_ms)
        self._now_ms = now_ms
        self._requests = 0  # of the last reading
        self._last: dict[str, tuple[TopicExtent, int]] = {}  # by topic: what was there, and when that was read
        self._growth: dict[str, tuple[float, Sequence[int]]] = {}  # by topic: the rate, and the hot partitions
        self._series: dict[str, Sequence[Point]] = {}  # by topic
        self._background = Background(self._read, self._interval_ms, clock_ms=clock_ms)

    def look(self, wait_ms: int) -> Look[Snapshot]:
        """The figures of the last reading. Begins another one if they are old."""
        return self._background.look(wait_ms)

    def _interval_ms(self) -> int:
        is_cheap = self._requests <= CONSOLE_FIGURES_REQUESTS_FEW
        return CONSOLE_FIGURES_MS_MIN if is_cheap else SDK_METRICS_INTERVAL_MS

    def _read(self) -> Snapshot:
        before = self._transport.requests
        figures = self.collector.figures()
        self._requests = self._transport.requests - before
        consumers = [
            ConsumerFigure(
                kind=each.kind, name=each.name, lag=each.value, is_abandoned=self._is_abandoned(each.kind, each.value)
            )
            for each in figures
            if isinstance(each.value, Lag)
        ]
        behind = Counter[str]()
        for consumer in consumers:
            if not consumer.is_abandoned:
                behind.update({topic: lag.records for topic, lag in consumer.lag.by_topic.items()})
        topics = [
            self._topic(each.name, each.value, each.read_at_ms, behind[each.name])
            for each in figures
            if isinstance(each.value, TopicExtent)
        ]
        self._series = {each.name: each.series for each in topics if each.series}
        return Snapshot(topics=topics, consumers=consumers, is_complete=self.collector.is_complete)

    def _is_abandoned(self, kind: str, lag: Lag) -> bool:
        return kind == GROUP and not lag.members and self._now_ms() - lag.committed_at_ms > CONSOLE_ABANDONED_MS

    def _topic(self, name: str, found: TopicExtent, read_at_ms: int, behind: int) -> TopicFigure:
        rate, hot = self._grown(name, found, read_at_ms)
        series = self._series.get(name, ())
        is_new = not series or series[-1].at_ms < read_at_ms
        if rate is not None and is_new and (series or len(self._series) < CONSOLE_SERIES_MAX):
            series = self._series[name] = (*series, Point(read_at_ms, rate, behind))[-CONSOLE_SERIES_POINTS_MAX:]
        return TopicFigure(name=name, held=found.held, rate=rate, hot=hot, series=series)

    def _grown(self, topic: str, found: TopicExtent, read_at_ms: int) -> tuple[float | None, Sequence[int]]:
        """The topic's rate and its hot partitions; the last ones if the topic was not read again."""
        was, was_at_ms = self._last.get(topic, (found, read_at_ms))
        self._last[topic] = (found, read_at_ms)
        if read_at_ms > was_at_ms:
            rate = max(0, found.appended - was.appended) * 1_000 / (read_at_ms - was_at_ms)
            came = {number: max(0, end - was.ends.get(number, 0)) for number, end in found.ends.items()}
            self._growth[topic] = (rate, tuple(hot_partitions(came)))
        return self._growth.get(topic, (None, ()))


def _furthest_first(consumers: Iterable[ConsumerFigure]) -> Sequence[ConsumerFigure]:
    """Those with something to do, the one with the oldest record first."""
    found = [each for each in consumers if each.lag.records or each.lag.oldest_age_ms]
    return sorted(found, key=lambda each: (-each.lag.oldest_age_ms, -each.lag.records, each.kind, each.name))
