"""The dollars of a day's real counts, by topic: requests and records. Storage and waiting are not in it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.cost.counted import Counts, counted
from penstock.cost.estimate import CostLine, by_price, priced
from penstock.cost.reading import reads_per_s
from penstock.cost.usage import DAY_S, DayUsage, TopicDay
from penstock.cost.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPrice:
    """A topic's day: what was counted, and its lines, the dearest first."""

    day: TopicDay
    lines: Sequence[CostLine]

    @property
    def usd(self) -> float:
        """The dollars of the day."""
        return sum(line.usd for line in self.lines)


def price_day(profile: str, usage: DayUsage, assumed: Workload) -> list[TopicPrice]:
    """The day of each topic, the dearest first.

    Requests that were counted for the stage are split by records. Where nothing counted them, they follow from
    `assumed`, as an estimate's do.
    """
    received = sum(day.records_received for day in usage.topics) or 1.0
    sent = sum(day.records_sent or 0.0 for day in usage.topics) or 1.0
    found = []
    for day in usage.topics:
        shape = _workload(day, assumed)
        if usage.produce_requests is None or usage.fetch_requests is None:
            produced = shape.requests_per_s * DAY_S
            fetched = reads_per_s(shape).fetches * shape.consumers * DAY_S
        else:
            produced = usage.produce_requests * day.records_received / received
            fetched = usage.fetch_requests * (day.records_sent or 0.0) / sent
        lines = [*_produce(profile, shape, produced), *_fetch(profile, day, shape, fetched, produced)]
        found.append(TopicPrice(day=day, lines=by_price(lines)))
    return sorted(found, key=lambda each: -each.usd)


def _workload(day: TopicDay, assumed: Workload) -> Workload:
    size = assumed.record_bytes
    if day.bytes_received and day.records_received:
        size = max(1, round(day.bytes_received / day.records_received))
    return replace(assumed, records_per_s=day.records_received / DAY_S, record_bytes=size)


def _produce(profile: str, shape: Workload, requests: float) -> list[CostLine]:
    if not requests:
        return []
    size = shape.bytes_per_s * DAY_S / requests
    counts = counted(profile).append(size, shape.partitions_per_request)
    return priced("produce", _times(counts, requests))


def _fetch(profile: str, day: TopicDay, shape: Workload, requests: float, produced: float) -> list[CostLine]:
    """The gets are one for each produce request and reader, since each one made a segment."""
    if not requests:
        return []
    readers = shape.consumers if day.records_sent is None else day.records_sent / max(1.0, day.records_received)
    sent_bytes = shape.bytes_per_s * DAY_S * readers if day.bytes_sent is None else day.bytes_sent
    segments = max(1.0, produced * readers / requests)
    counts = counted(profile).fetch(sent_bytes / requests, segments)
    return priced("consume", _times(counts, requests))


def _times(counts: Counts, factor: float) -> Counts:
    return {name: value * factor for name, value in counts.items()}
