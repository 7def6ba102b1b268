"""The records of each topic on one day, as the service has counted them.

On AWS they come from the metrics that a stage with `metrics=topics` or `all` publishes (docs/adr/0045). Without them
they come from the offsets of the topics at the day's begin and end, which every service knows. Then bytes, reads and
requests are missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.admin.admin import Admin
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
            "reads: --consumers gives the consumers of each topic",
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
