"""The records of each topic on one day, as the service has counted them.

On AWS they come from the metrics that a stage with `metrics=topics` or `all` publishes (docs/adr/0045). Without them
they come from the offsets of the topics at the day's begin and end, which every service knows. Then bytes, reads and
requests are missing.

The dollars of a day's real counts, by topic: requests and records. Storage and waiting are not in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.admin.admin import Admin
from penstock.cost.counted import counted, times
from penstock.cost.estimate import CostLine, by_price, priced
from penstock.cost.reading import reads_per_s
from penstock.cost.workload import Workload
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import SDK_PAGES_MAX

DAY_S = 86_400
_NAMESPACE = "Penstock"
_METRICS = ("records_received", "bytes_received", "records_sent", "bytes_sent")
_TOPICS_MAX = 100  # with four metrics each, one GetMetricData takes them
_HOUR_S = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDay:
    """The counts of a topic on one day; None for those that nothing has counted."""

    topic: str
    records_received: float
    bytes_received: float | None = None
    records_sent: float | None = None
    bytes_sent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DayUsage:
    """The counts of all topics, and the requests of the whole stage. `missing` says what was not counted, and why."""

    source: str
    topics: Sequence[TopicDay]
    produce_requests: float | None = None
    fetch_requests: float | None = None
    missing: Sequence[str] = ()


def usage_from_metrics(cloudwatch: Any, stage: str, start_s: float) -> DayUsage | None:
    """The counts of the day that begins then, from CloudWatch; None if the stage published none.

    One GetMetricData, and one ListMetrics for each 500 series. Raises ACCESS_DENIED with the rights that it takes.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # 0.1 s, which a local service need not wait for

    try:
        return _usage_from_metrics(cloudwatch, stage, start_s)
    except (BotoCoreError, ClientError) as error:
        raise PenstockError(
            ErrorCode.ACCESS_DENIED,
            f"CloudWatch could not be asked: {error}; your credentials need cloudwatch:ListMetrics and "
            "cloudwatch:GetMetricData",
        ) from error


def _usage_from_metrics(cloudwatch: Any, stage: str, start_s: float) -> DayUsage | None:
    topics = sorted(_topics(cloudwatch, stage))[:_TOPICS_MAX]
    asked = [
        *((_NAMESPACE, metric, {"service": stage, "topic": topic}) for topic in topics for metric in _METRICS),
        *(("AWS/Lambda", "Invocations", {"FunctionName": f"{stage}-{name}"}) for name in ("produce", "fetch")),
    ]
    if not topics:
        return None
    answer = cloudwatch.get_metric_data(
        MetricDataQueries=[hourly_sum(number, *each) for number, each in enumerate(asked)],
        StartTime=start_s,
        EndTime=start_s + DAY_S,
    )
    sums = [0.0] * len(asked)
    for result in answer["MetricDataResults"]:
        sums[int(result["Id"][1:])] += sum(result["Values"])
    days = [
        TopicDay(
            topic=topic,
            **dict(zip(_METRICS, sums[at * len(_METRICS) : (at + 1) * len(_METRICS)], strict=True)),
        )
        for at, topic in enumerate(topics)
    ]
    missing = [
        "requests in JSON, of transactions and of share groups: only those of produce and fetch are priced",
        "storage, members that wait, and the stage's own floor: `penstock cost --rate` estimates them",
    ]
    if any(topic == "(other)" for topic in topics):
        missing.append("topics without a series of their own: they are together in (other)")
    return DayUsage(
        source="CloudWatch", topics=days, produce_requests=sums[-2], fetch_requests=sums[-1], missing=missing
    )


def usage_from_offsets(admin: Admin, start_ms: int) -> DayUsage:
    """The records that came to each topic on the day that begins then. Three requests for each topic."""
    days = []
    for topic in admin.list_topics():
        latest = admin.list_offsets(topic.name, "latest")
        begin = admin.list_offsets(topic.name, start_ms)
        end = admin.list_offsets(topic.name, start_ms + DAY_S * 1_000)
        days.append(TopicDay(topic=topic.name, records_received=_from(end, latest) - _from(begin, latest)))
    return DayUsage(
        source="offsets",
        topics=days,
        missing=(
            "bytes: --size gives the bytes of a record",
            "produce requests: they follow from --request, or --linger and --producers",
            "reads: --groups gives the groups that read each topic",
            "records that retention has removed since",
            "a stage with metrics=topics counts all of these but the last (docs/how-to/operate.md)",
        ),
    )


def _from(offsets: Mapping[int, int | None], latest: Mapping[int, int | None]) -> int:
    """The sum of the offsets; the end of the partition where no record is that new."""
    return sum((latest.get(partition) or 0) if offset is None else offset for partition, offset in offsets.items())


def _topics(cloudwatch: Any, stage: str) -> Iterator[str]:
    token: dict[str, str] = {}
    for _ in range(SDK_PAGES_MAX):
        page = cloudwatch.list_metrics(
            Namespace=_NAMESPACE,
            MetricName="records_received",
            Dimensions=[{"Name": "service", "Value": stage}, {"Name": "topic"}],
            **token,
        )
        for metric in page["Metrics"]:
            yield from (each["Value"] for each in metric["Dimensions"] if each["Name"] == "topic")
        if "NextToken" not in page:
            return
        token = {"NextToken": page["NextToken"]}


def hourly_sum(number: int, namespace: str, metric: str, dimensions: Mapping[str, str]) -> dict[str, Any]:
    """Returns one entry of MetricDataQueries; its id is `m` and the number."""
    return {
        "Id": f"m{number}",
        "MetricStat": {
            "Metric": {
                "Namespace": namespace,
                "MetricName": metric,
                "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
            },
            "Period": _HOUR_S,
            "Stat": "Sum",
        },
    }


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
            fetched = reads_per_s(shape).fetches * DAY_S
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
    return priced("produce", times(counts, requests))


def _fetch(profile: str, day: TopicDay, shape: Workload, requests: float, produced: float) -> list[CostLine]:
    """The gets are one for each produce request and reader, since each one made a segment."""
    if not requests:
        return []
    readers = shape.groups if day.records_sent is None else day.records_sent / max(1.0, day.records_received)
    sent_bytes = shape.bytes_per_s * DAY_S * readers if day.bytes_sent is None else day.bytes_sent
    segments = max(1.0, produced * readers / requests)
    counts = counted(profile).fetch(sent_bytes / requests, segments)
    return priced("consume", times(counts, requests))
