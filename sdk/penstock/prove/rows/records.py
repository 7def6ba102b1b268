"""Rows that append and read: what S3 takes, limits, latencies, late zones, delayed records and wake-ups."""

import json
from collections.abc import Mapping

from penstock.consumer.consumer import Consumer
from penstock.doctor.recorder import Exchange
from penstock.http.http_message import JSON_TYPE
from penstock.model import TopicPartition
from penstock.prove.proof import Emulator, Latencies, Proof, ProofRow, left_out, ruled
from penstock.prove.proven_stage import (
    PAST_INLINE_BYTES,
    ProvenStage,
    UnexpectedAnswerError,
    appended_offset,
    error_of,
    failure,
)
from penstock.system import monotonic_ms, random_bytes
from penstock_core.errors import ErrorCode
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.limits import BATCH_BYTES_MAX, KIB, TAIL_ROLL_REFS
from penstock_core.storage.head_item import head_key, parse_head

FUNCTION_P99_MS_MAX = 1_000
LATE_MS_MAX = 5_000  # of a delayed record
WAKE_UP_MS_MAX = 1_000
_ANSWERED, _DENIED, _TOO_LARGE = 200, 403, 413
_TAKEN_BYTES, _REFUSED_BYTES, _EVENT_BYTES = 3_900_000, 4_400_000, 4_800_000  # base64 makes more than 6 MB of the last
_APPENDS, _APPENDS_TO_ALL, _SMALL_APPENDS = 50, 25, 40
_LATE_TOPICS, _LATE_APPENDS = 4, TAIL_ROLL_REFS - 1  # the next append would move them out of the head
_DELAYED, _DELAY_MS = 4, 2_000
_WAKE_UPS, _ASLEEP_MS, _SLEEP_MS_MAX = 5, 1_500, 20_000
_POLL_S = 0.1


def wire(stage: ProvenStage) -> Proof:
    """A record of more than an item's size, which has to be put into the zones, and the way back."""
    topic, value = stage.new_topic(), random_bytes(PAST_INLINE_BYTES)
    found = _appended(stage.append(topic, value))
    puts = found.storage_calls.get("s3.PutObject", 0)
    [record] = stage.read(topic)
    kinds = _kinds_of_buckets(stage)
    fact = f"{puts} puts into {kinds}, and the record came back {'as it was' if record.value == value else 'changed'}"
    return ruled(_are_put(stage, puts) and record.value == value, fact, s3_puts=puts)


def _are_put(stage: ProvenStage, puts: int) -> bool:
    """True if S3 has them. A service without AWS tells no calls."""
    return puts > 0 or stage.account is None


def _kinds_of_buckets(stage: ProvenStage) -> str:
    if stage.account is None:
        return "the zones"
    buckets = stage.zone_buckets.values()
    directories = sum(each.endswith("--x-s3") for each in buckets)
    return f"{directories} directory buckets and {len(buckets) - directories} ordinary ones"


def limits(stage: ProvenStage) -> Proof:
    """Three bodies of produce requests: below our limit, above it, and above Lambda's."""
    topic = stage.new_topic(max_batch_bytes=BATCH_BYTES_MAX)
    answers = {size: stage.append(topic, random_bytes(size)) for size in (_TAKEN_BYTES, _REFUSED_BYTES, _EVENT_BYTES)}
    statuses = {size: each.response.status for size, each in answers.items()}
    told = ", ".join(f"{size / 1e6:.1f} MB: {status}" for size, status in statuses.items())
    is_ours = error_of(answers[_REFUSED_BYTES]) == ErrorCode.REQUEST_TOO_LARGE.name
    # An event above Lambda's 6 MB reaches no function, so its answer has no code of ours.
    is_lambdas = stage.is_local or error_of(answers[_EVENT_BYTES]) == str(_TOO_LARGE)
    is_so = [*statuses.values()] == [_ANSWERED, _TOO_LARGE, _TOO_LARGE] and is_ours and is_lambdas
    return ruled(is_so, told, **{f"status_of_{size}_bytes": status for size, status in statuses.items()})


def quorum(stage: ProvenStage) -> Proof:
    """Appends one by one, with a quorum and with all zones, and the states of the zones after that."""
    topic = stage.new_topic()
    _appended(stage.append(topic))  # warm
    found = {
        acks: [_appended(stage.append(topic, acks=acks)) for _ in range(count)]
        for acks, count in (("quorum", _APPENDS), ("all", _APPENDS_TO_ALL))
    }
    inside = {acks: Latencies.of([_function_ms(each) for each in each_of]) for acks, each_of in found.items()}
    outside = {acks: Latencies.of([each.duration_ms for each in each_of]) for acks, each_of in found.items()}
    out = [each.zone for each in stage.admin.list_zones() if each.state != "in_sync"]
    fact = "; ".join(f"{acks}: {outside[acks]}, in the function {inside[acks]}" for acks in found)
    fact += f"; not in sync after it: {', '.join(out)}" if out else "; all zones in sync after it"
    figures: dict[str, float | int] = {}
    for acks in found:
        figures |= outside[acks].figures(f"{acks}_") | inside[acks].figures(f"{acks}_function_")
    is_quick = stage.in_time(max(each.p99_ms for each in inside.values()), FUNCTION_P99_MS_MAX)
    return ruled(is_quick and not out, fact, **figures)


def late_zones(stage: ProvenStage) -> Proof:
    """The share of appends that were acknowledged before each zone had them, by the refs in the partition's head."""
    zones = len(stage.zone_buckets)
    if zones == 1:
        return left_out("the stage has one zone")
    held = [count for _ in range(_LATE_TOPICS) for count in _zones_of_appends(stage)]
    late = sum(count < zones for count in held)
    fact = f"{late} of {len(held)} appends were acknowledged before the last zone had them"
    return ruled(min(held) >= zones // 2 + 1, fact, appends=len(held), late=late, zones_at_least=min(held))


def _zones_of_appends(stage: ProvenStage) -> list[int]:
    """Of each append to a new topic, the number of zones that had it at its answer."""
    topic = stage.new_topic()
    for _ in range(_LATE_APPENDS):
        _appended(stage.append(topic))
    topic_id = TopicId(stage.admin.describe_topic(topic).topic.topic_id)
    key = head_key(PartitionKey(topic_id, Partition(0)))
    answer = stage.client("dynamodb").get_item(TableName=stage.outputs["LogTable"], Key=key, ConsistentRead=True)
    return [each.zones.bit_count() for each in parse_head(answer["Item"]).tail]


def function_time(stage: ProvenStage) -> Proof:
    """The time of a warm append of 1 KiB in its function, which the bill assumes."""
    from penstock.cost.counted import function_ms  # it reads a file

    topic = stage.new_topic()
    _appended(stage.append(topic, b"warm"))
    times = [_function_ms(_appended(stage.append(topic, random_bytes(KIB)))) for _ in range(_SMALL_APPENDS)]
    mean_ms, assumed_ms = sum(times) / len(times), function_ms()[0]
    fact = f"{mean_ms:.1f} ms in the mean, and the bill assumes {assumed_ms:g} ms"
    return ruled(stage.in_time(mean_ms, assumed_ms), fact, mean_ms=round(mean_ms, 1), assumed_ms=assumed_ms)


def delayed(stage: ProvenStage) -> Proof:
    """Delayed records, which the archive bucket takes, and how late a reader has them."""
    if not (stage.is_own or _is_switched_on(stage)):
        return left_out(
            "this stage has had no delayed record. The first one switches its pollers on for good ($0.26 a month), "
            "so only a stage of its own is asked: --deploy"
        )
    topic = stage.new_topic()
    puts, due_ms = 0, []
    for number in range(_DELAYED):
        delay_ms = _DELAY_MS + 1_000 * number
        body = {"records": [{"value": str(number), "delay_ms": delay_ms}]}
        answer = _appended(_json(stage, f"/v1/topics/{topic}/records", body))
        puts += answer.storage_calls.get("s3.PutObject", 0)
        due_ms.append(answer.began_ms + delay_ms)  # the service takes it a little later
    seen: dict[int, int] = {}
    end_ms = due_ms[-1] + 4 * LATE_MS_MAX
    while len(seen) < _DELAYED and monotonic_ms() < end_ms:
        for record in stage.read(topic, len(seen)):
            seen[int(record.value or b"")] = monotonic_ms()
        stage.wait(_POLL_S)
    late = [seen[number] - at_ms for number, at_ms in enumerate(due_ms) if number in seen]
    if len(late) < _DELAYED or min(late) < 0:
        return ruled(False, f"{len(late)} of {_DELAYED} records came within {4 * LATE_MS_MAX} ms, late by {late} ms")
    fact = f"a reader had them {Latencies.of(late)} after they were due; {puts} puts into the archive bucket"
    is_on = _is_switched_on(stage)
    fact += "" if is_on else "; the rule of the minute is still off"
    return ruled(
        is_on and stage.in_time(max(late), LATE_MS_MAX) and _are_put(stage, puts),
        fact,
        **Latencies.of(late).figures("late_"),
        s3_puts=puts,
    )


def _is_switched_on(stage: ProvenStage) -> bool:
    """True if the rule of `promote` is on, and where there are no rules."""
    if stage.account is None:
        return True
    rule = stage.outputs["TimerPlaces"].split(",")[1]
    return bool(stage.client("events").describe_rule(Name=rule)["State"] == "ENABLED")


def wake_ups(stage: ProvenStage) -> Proof:
    """A consumer that sleeps, and how long after an append's answer it has the record."""
    if json.loads(stage.call("GET", "/v1/wake-ups").response.body).get("realtime") is None:
        return left_out("the stage has no wake-ups")
    topic = stage.new_topic()
    times: list[float] = []
    with Consumer(transport=stage.transport, wait="wake", max_poll_records=1) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        for _ in range(_WAKE_UPS):
            if not _falls_asleep(stage, consumer):
                return ruled(False, f"the consumer went on fetching for {_SLEEP_MS_MAX} ms: it uses long polls")
            value = random_bytes(16)
            ended_ms = _appended(stage.append(topic, value)).ended_ms
            records = consumer.poll(timeout_ms=_SLEEP_MS_MAX)
            if [each.value for each in records] != [value]:
                return ruled(False, f"{len(records)} records within {_SLEEP_MS_MAX} ms after an append")
            times.append(max(0, monotonic_ms() - ended_ms))
    found = Latencies.of(times)
    return ruled(
        stage.in_time(found.p99_ms, WAKE_UP_MS_MAX), f"{found} after the answer to the append", **found.figures()
    )


def _falls_asleep(stage: ProvenStage, consumer: Consumer) -> bool:
    """True once the consumer has sent no fetch for a while, which one that polls never does."""
    began_ms = quiet_ms = monotonic_ms()
    fetches = _count(stage, "/v1/fetch")
    while monotonic_ms() - began_ms < _SLEEP_MS_MAX:
        consumer.poll(timeout_ms=100)
        if (now := _count(stage, "/v1/fetch")) != fetches:
            fetches, quiet_ms = now, monotonic_ms()
        elif fetches and monotonic_ms() - quiet_ms >= _ASLEEP_MS:
            return True
    return False


def _count(stage: ProvenStage, path: str) -> int:
    return sum(each.path == path for each in stage.transport.exchanges)


def _json(stage: ProvenStage, path: str, body: Mapping[str, object]) -> Exchange:
    return stage.call("POST", path, json.dumps(body).encode(), {"Content-Type": JSON_TYPE})


def _appended(exchange: Exchange) -> Exchange:
    """The exchange, if it was answered well. Raises UnexpectedAnswerError."""
    is_append = exchange.path == "/v1/produce"
    if exchange.response.status == _DENIED:
        raise failure(exchange)
    if exchange.response.status != _ANSWERED or (is_append and appended_offset(exchange) is None):
        raise UnexpectedAnswerError(f"POST {exchange.path} answered {exchange.response.status} {error_of(exchange)}")
    return exchange


def _function_ms(exchange: Exchange) -> float:
    """The time in the function; seen from here, where an answer tells none."""
    return exchange.duration_ms if exchange.function_ms is None else exchange.function_ms


def record_rows() -> list[ProofRow]:
    """The rows, in the order in which they are to run."""
    return [
        ProofRow(
            name="puts into the zones",
            expects="S3 takes UNSIGNED-PAYLOAD with a CRC-32C, and the record comes back",
            ask=wire,
            emulator=Emulator.RUNS,
        ),
        ProofRow(
            name="limits of a body",
            expects="3.9 MB: 200; 4.4 MB: 413 of Penstock; 4.8 MB: 413 of AWS",
            ask=limits,
            usd_max=0.01,
            seconds_max=60,
            emulator=Emulator.RUNS,
        ),
        ProofRow(
            name="latency of an append",
            expects=f"p99 in the function is {FUNCTION_P99_MS_MAX:,} ms at most, and all zones stay in sync",
            ask=quorum,
            usd_max=0.01,
            seconds_max=60,
            emulator=Emulator.RUNS,
        ),
        ProofRow(
            name="late zones",
            expects="each append is in most zones before its answer; the share with a late zone is told",
            ask=late_zones,
            usd_max=0.005,
            seconds_max=30,
            action="dynamodb:GetItem on the log table, cloudformation:DescribeStacks",
            emulator=Emulator.RUNS,
        ),
        ProofRow(
            name="time of a function",
            expects="a warm append of 1 KiB takes what the bill assumes at most",
            ask=function_time,
            usd_max=0.005,
            seconds_max=30,
            emulator=Emulator.RUNS,
        ),
        ProofRow(
            name="delayed records",
            expects=f"a reader has each {LATE_MS_MAX:,} ms after it is due at most",
            ask=delayed,
            usd_max=0.01,
            seconds_max=60,
            emulator=Emulator.RUNS,
        ),
        ProofRow(
            name="wake-ups",
            expects=f"a consumer that sleeps has a record {WAKE_UP_MS_MAX:,} ms after the append at most",
            ask=wake_ups,
            usd_max=0.01,
            seconds_max=90,
            emulator=Emulator.RUNS,
        ),
    ]
