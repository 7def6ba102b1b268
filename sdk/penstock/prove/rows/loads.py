"""Rows that load or change the stage: a hot partition, a zone that is shut off, cold starts, idle minutes."""

import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from penstock.doctor.recorder import Exchange
from penstock.errors import ConnectionFailedError
from penstock.prove.leftover_kinds import ZONE_REASON, set_logging_config
from penstock.prove.proof import Emulator, Latencies, Proof, ProofRow, Steps, left_out, ruled
from penstock.prove.proven_stage import (
    ProvenStage,
    UnexpectedAnswerError,
    appended_offset,
    error_in,
    error_of,
    log_lines,
)
from penstock.system import monotonic_ms, wall_clock_ms

HOT_APPENDS_MAX = 6_000
HOT_MS = 12_000
COLD_START_MS_MAX = 900
_HOT_THREADS, _HOT_LOCALLY = 32, (4, 4_000)  # threads; threads and milliseconds where one machine runs all
_METRIC_MS = 75_000  # CloudWatch has a minute's metrics about a minute after it
_SYNC_MS, _LOOK_MS, _ZONE_APPENDS = 170_000, 3_000, 10
_COLD_FUNCTIONS, _LOG_MS = ("produce", "fetch"), 60_000
_IN_SYNC = "in_sync"


class _Fate(Enum):
    """The fate of an append: it is in the log, it is not, or the answer does not tell."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True, kw_only=True)
class _HotAppend:
    value: bytes
    fate: _Fate
    offset: int | None
    code: str


def hot_partition(stage: ProvenStage) -> Steps:
    """Appends to one partition from many threads without a second try, then all of it is read and compared."""
    topic = stage.new_topic()
    threads_max, load_ms = _HOT_LOCALLY if stage.is_local else (_HOT_THREADS, HOT_MS)
    began_ms, began_at_ms = monotonic_ms(), wall_clock_ms()

    def send(number: int) -> _HotAppend | None:
        return None if monotonic_ms() - began_ms > load_ms else _sent(stage, topic, f"{number}".encode())

    with ThreadPoolExecutor(threads_max) as threads:
        appends = [each for each in threads.map(send, range(HOT_APPENDS_MAX)) if each is not None]
    seconds = (monotonic_ms() - began_ms) / 1_000
    found = {each.offset: each.value or b"" for each in stage.read(topic)}
    counts = {fate: sum(each.fate is fate for each in appends) for fate in _Fate}
    throttled = sum(each.code in ("THROTTLED", "429") for each in appends)
    wrong = _wrong(appends, found)
    figures: dict[str, float | int | str] = {
        "appends_per_s": round(len(appends) / seconds),
        **{fate.value: count for fate, count in counts.items()},
        "throttled": throttled,
        "wrong": wrong,
    }
    fact = (
        f"{len(appends):,} appends in {seconds:.0f} s: {counts[_Fate.ACKNOWLEDGED]:,} acknowledged, "
        f"{counts[_Fate.REFUSED]:,} refused, {counts[_Fate.UNSURE]:,} unsure, {throttled:,} of them throttled; "
        f"{wrong} are not in the log as their answers say"
    )
    if stage.account is not None and not stage.is_local:
        yield _METRIC_MS
        figures["write_throttle_events"] = events = _throttle_events(stage, began_at_ms)
        fact += f"; DynamoDB counted {events} throttled writes of the log table"
    return ruled(wrong == 0 and counts[_Fate.ACKNOWLEDGED] > 0, fact, **figures)


def _sent(stage: ProvenStage, topic: str, value: bytes) -> _HotAppend:
    try:
        exchange = stage.append(topic, value)
    except ConnectionFailedError as error:
        fate = _Fate.UNSURE if error.maybe_applied else _Fate.REFUSED
        return _HotAppend(value=value, fate=fate, offset=None, code=error.code.name)
    offset = appended_offset(exchange)
    if offset is not None:
        return _HotAppend(value=value, fate=_Fate.ACKNOWLEDGED, offset=offset, code="")
    return _HotAppend(value=value, fate=_refusal(exchange), offset=None, code=error_of(exchange))


def _refusal(exchange: Exchange) -> _Fate:
    """An answer below 500 was given before anything was done. Another one says whether it may have been applied."""
    error = error_in(exchange)
    if error is None:
        return _Fate.UNSURE if exchange.response.status >= 500 else _Fate.REFUSED
    return _Fate.UNSURE if error.get("maybe_applied") else _Fate.REFUSED


def _wrong(appends: Sequence[_HotAppend], found: dict[int, bytes]) -> int:
    """Acknowledged values that are not at their offset, values at two offsets, and refused ones that are there."""
    values = list(found.values())
    refused = {each.value for each in appends if each.fate is _Fate.REFUSED}
    lost = sum(found.get(each.offset or 0) != each.value for each in appends if each.fate is _Fate.ACKNOWLEDGED)
    return lost + len(values) - len(set(values)) + len(refused & set(values))


def _throttle_events(stage: ProvenStage, began_at_ms: int) -> int | str:
    """The number that CloudWatch has, or why there is none. The row is about the log, so it holds without."""
    from botocore.exceptions import ClientError

    try:
        answer = stage.client("cloudwatch").get_metric_statistics(
            Namespace="AWS/DynamoDB",
            MetricName="WriteThrottleEvents",
            Dimensions=[{"Name": "TableName", "Value": stage.outputs["LogTable"]}],
            StartTime=datetime.fromtimestamp(began_at_ms // 60_000 * 60, UTC),
            EndTime=datetime.fromtimestamp(wall_clock_ms() / 1_000, UTC),
            Period=60,
            Statistics=["Sum"],
        )
    except ClientError as error:
        return f"an unknown number of ({error.response['Error']['Code']}: needs cloudwatch:GetMetricStatistics)"
    return int(sum(each["Sum"] for each in answer["Datapoints"]))


def zone_out(stage: ProvenStage) -> Proof | Steps:
    """Appends while the last zone is out, and the time until it is in sync again."""
    zones = stage.admin.list_zones()
    if len(zones) < 3:
        return left_out(f"the stage has {len(zones)} zones, and a majority has to stay in sync")
    behind = [each.zone for each in zones if each.state != _IN_SYNC]
    if behind:
        return left_out(f"zone {', '.join(behind)} is not in sync, so no other one may go out")
    fallbacks = set() if stage.account is None else {each.zone for each in zones} - stage.zone_buckets.keys()
    return _zone_out(stage, [each.zone for each in zones if each.zone not in fallbacks][-1])


def _zone_out(stage: ProvenStage, zone: str) -> Steps:
    topic = stage.new_topic()
    stage.leftovers.note("zone", zone)
    stage.admin.take_zone_out(zone, ZONE_REASON)
    out = [stage.append(topic) for _ in range(_ZONE_APPENDS)]
    stage.leftovers.undo("zone", zone)
    began_ms = monotonic_ms()
    offsets = [appended_offset(each) for each in out]
    times = Latencies.of([each.duration_ms for each in out])
    read = [each.offset for each in stage.read(topic)]
    state = ""
    while state != _IN_SYNC and monotonic_ms() - began_ms < _SYNC_MS:
        yield _LOOK_MS
        state = next(each.state for each in stage.admin.list_zones() if each.zone == zone)
    seconds = (monotonic_ms() - began_ms) / 1_000
    is_so = offsets == read == list(range(_ZONE_APPENDS)) and state == _IN_SYNC
    fact = f"without zone {zone}: {times}; then it was {state} after {seconds:.0f} s"
    return ruled(is_so, fact, **times.figures("out_"), in_sync_after_s=round(seconds), appended=len(read))


def cold_starts(stage: ProvenStage) -> Proof | Steps:
    """The time that Lambda takes to load a function, by a change of its log level, which ends its instances."""
    if stage.has_versions:
        return left_out("callers reach published versions, which a change of a function leaves as they are: --deploy")
    return _cold_starts(stage)


def _cold_starts(stage: ProvenStage) -> Steps:
    topic, lambda_ = stage.new_topic(), stage.client("lambda")
    found: dict[str, float] = {}
    first: dict[str, int] = {}
    for function in _COLD_FUNCTIONS:
        name, began_at_ms = f"{stage.name}-{function}", wall_clock_ms()
        before = lambda_.get_function_configuration(FunctionName=name)["LoggingConfig"]
        stage.leftovers.note("logging", name, before=before)
        set_logging_config(lambda_, name, {**before, "LogFormat": "JSON", "SystemLogLevel": "DEBUG"})
        first[function] = (stage.append(topic) if function == "produce" else _read_at(stage, topic, 0)).duration_ms
        end_ms = monotonic_ms() + _LOG_MS
        while function not in found and monotonic_ms() < end_ms:
            yield _LOOK_MS
            durations = _load_times(stage, before["LogGroup"], began_at_ms, end_ms)
            found |= {function: max(durations)} if durations else {}
        stage.leftovers.undo("logging", name)
    missing = [each for each in _COLD_FUNCTIONS if each not in found]
    fact = "; ".join(
        f"{each}: loaded in {ms:.0f} ms, first answer after {first[each]} ms" for each, ms in found.items()
    )
    if missing:
        return ruled(False, f"no platform.initReport of {', '.join(missing)} within {_LOG_MS // 1_000} s; {fact}")
    figures = {f"{each}_load_ms": round(ms) for each, ms in found.items()}
    return ruled(
        max(found.values()) <= COLD_START_MS_MAX, fact, **figures, **{f"{k}_first_ms": v for k, v in first.items()}
    )


def _read_at(stage: ProvenStage, topic: str, offset: int) -> Exchange:
    stage.read(topic, offset)
    return stage.transport.exchanges[-1]


def _load_times(stage: ProvenStage, group: str, since_ms: int, end_ms: int) -> list[float]:
    lines, _ = log_lines(stage, group, since_ms, '{ $.type = "platform.initReport" }', end_ms)
    return [float(json.loads(each)["record"]["metrics"]["durationMs"]) for each in lines]


def idle(stage: ProvenStage) -> Steps:
    """An append and a read, idle minutes, and the same again. No row behind it may append or read."""
    topic, zones = stage.new_topic(), len(stage.admin.list_zones())
    for offset in range(2):  # the second one is warm
        warm = stage.append(topic), _read_at(stage, topic, offset)
    yield stage.idle_ms
    first = stage.append(topic), _read_at(stage, topic, 2)
    if (offset_found := appended_offset(first[0])) != 2:
        raise UnexpectedAnswerError(f"the append after it answered {error_of(first[0])}, at offset {offset_found}")
    made = Counter(first[0].storage_calls) + Counter(first[1].storage_calls)
    # Caches and sessions are made anew. These calls carry the records.
    repeats = (made - Counter({**made, "s3.PutObject": zones, "s3.GetObject": 1, "dynamodb.UpdateItem": 1})).total()
    figures: dict[str, float | int] = {"idle_s": stage.idle_ms // 1_000, "calls_repeated": repeats}
    for name, before, after in zip(("append", "read"), warm, first, strict=True):
        figures |= {f"warm_{name}_ms": before.duration_ms, f"first_{name}_ms": after.duration_ms}
    fact = (
        f"after {stage.idle_ms // 1_000} s: append {first[0].duration_ms} ms (warm {warm[0].duration_ms}), "
        f"read {first[1].duration_ms} ms (warm {warm[1].duration_ms}), {repeats} storage calls repeated"
    )
    return ruled(repeats == 0, fact, **figures)


def load_rows(idle_ms: int) -> list[ProofRow]:
    """The rows, in the order in which they are to run. The last one waits for its idle minutes."""
    return [
        ProofRow(
            name="a hot partition",
            expects="DynamoDB may throttle, and no acknowledged append is lost, doubled or elsewhere",
            ask=hot_partition,
            usd_max=0.40,
            seconds_max=150,
            emulator=Emulator.RUNS,
            disturbs=True,
        ),
        ProofRow(
            name="a zone shut off",
            expects="appends go on without it, and it is in sync again within three minutes",
            ask=zone_out,
            usd_max=0.01,
            seconds_max=180,
            emulator=Emulator.RUNS,
            disturbs=True,
        ),
        ProofRow(
            name="idle minutes",
            expects="the first append and read after them make no storage call twice",
            ask=idle,
            usd_max=0.005,
            seconds_max=idle_ms // 1_000 + 15,
            emulator=Emulator.RUNS,
        ),
    ]


def cold_rows() -> list[ProofRow]:
    """The rows that end the instances of functions, so that no other row may wait for idle ones meanwhile."""
    return [
        ProofRow(
            name="cold starts",
            expects=f"Lambda loads a function in {COLD_START_MS_MAX} ms at most",
            ask=cold_starts,
            usd_max=0.01,
            seconds_max=200,
            action="lambda:GetFunctionConfiguration and UpdateFunctionConfiguration, logs:FilterLogEvents",
            emulator=Emulator.LACKS,
            disturbs=True,
        )
    ]
