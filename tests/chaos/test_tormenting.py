"""Workers are killed and frozen again and again, end when they are asked, and are missed when they die.

The compactor is a process of its own, so its storage crosses as text.

The injector strikes the planned calls as often as planned, and no others.

The plan: all of it follows from the seed, one zone at a time, and every kind has its turn.

A run that delivers nothing fails, and a run of subscriptions alone asks for no more than they do.

The recording transport records every produce request, and no more of it than is known.
"""

import io
import json
import multiprocessing
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from itertools import pairwise
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.errors import ConnectionFailedError
from penstock.http.http_message import Response
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from penstock_service.adapters.aws import Storage, parse_zones
from tests.chaos.clients.compactor import storage_of_json
from tests.chaos.clients.stop_file import StopFile
from tests.chaos.clients.values import make_value, name_of
from tests.chaos.injector import Injector
from tests.chaos.judging.verdict import Verdict
from tests.chaos.plan import Plan, PlannedStrike, Strike, ZoneFault, ZoneOutage, make_plan
from tests.chaos.push.subscriptions import DRAINED, MIRROR
from tests.chaos.recording import RecordingTransport
from tests.chaos.tormenting import ENDED, FROZEN, KILLED, Torment, tormenting
from tests.chaos.workload import Clients
from tests.end_to_end.fault_proxy import Answer, Call, Hang, Kill
from tests.history.push.figures import PushFigures
from tests.history.recorder import Recorder
from tests.history.report import Counts, Report
from tests.support.deadlines import until

_SPAWN = multiprocessing.get_context("spawn")
_AT_ONCE = Torment(life_s=(0.0, 0.05), stands_s=(0.0, 0.05), freeze_share=0.5)
_NEVER = Torment(life_s=(600.0, 600.0))


def work(stop: StopFile) -> None:
    while not stop.wait(0.1):
        continue


def test_workers_are_frozen_and_killed_and_started_again(tmp_path: Path) -> None:
    stop = StopFile(tmp_path / "stop")
    lives: list[int] = []

    def start(_slot: str, life: int) -> SpawnProcess:
        lives.append(life)
        return _SPAWN.Process(target=work, args=(stop,))

    with tormenting(("a",), 1, start, stop.set, _AT_ONCE) as done:
        until(lambda: done[KILLED] > 1 and done[FROZEN] > 1 and len(lives) > 2)
    assert lives == list(range(len(lives)))
    assert not done[ENDED]


def test_worker_ends_when_it_is_asked(tmp_path: Path) -> None:
    stop = StopFile(tmp_path / "stop")
    with tormenting(("a", "b"), 1, lambda *_: _SPAWN.Process(target=work, args=(stop,)), stop.set, _NEVER) as done:
        pass
    assert not any(done.values())


@pytest.mark.parametrize("code", [1, 3])
def test_worker_that_dies_is_counted(tmp_path: Path, code: int) -> None:
    stop = StopFile(tmp_path / "stop")
    with tormenting(("a",), 1, lambda *_: _SPAWN.Process(target=sys.exit, args=(code,)), stop.set, _NEVER) as done:
        until(lambda: done[ENDED] > 0)


def test_blow_is_struck_within_what_goes_around_it(tmp_path: Path) -> None:
    stop, entered = StopFile(tmp_path / "stop"), list[str]()

    @contextmanager
    def around(slot: str) -> Iterator[None]:
        entered.append(slot)
        yield

    def start(_slot: str, _life: int) -> SpawnProcess:
        return _SPAWN.Process(target=work, args=(stop,))

    with tormenting(("a",), 1, start, stop.set, _AT_ONCE, around) as done:
        until(lambda: done[KILLED] > 0 and done[FROZEN] > 0)
    assert len(entered) == done[KILLED] + done[FROZEN]
    assert {*entered} == {"a"}


def test_storage_is_the_same_after_its_way_as_text() -> None:
    storage = Storage(
        topics_table="topics",
        log_table="log",
        groups_table="groups",
        repair_queue_url="http://queue",
        zones=parse_zones("a=bucket-a,b=bucket-b,c=bucket-c:fallback"),
        archive="archive",
        region="us-east-1",
    )
    assert storage_of_json(json.dumps(asdict(storage))) == storage


BUCKETS = {"bucket-a": "a", "bucket-b": "b"}
UPDATE = Call(service="dynamodb", operation="UpdateItem")
PUT_A = Call(service="s3", operation="PutObject", bucket="bucket-a")
PUT_B = Call(service="s3", operation="PutObject", bucket="bucket-b")


def injector(*, strikes: tuple[PlannedStrike, ...] = (), outages: tuple[ZoneOutage, ...] = ()) -> Injector:
    return Injector(Plan(seed=0, seconds=1_000, outages=outages, strikes=strikes), BUCKETS)


def test_strike_hits_as_many_calls_of_its_operation_as_planned() -> None:
    found = injector(strikes=(PlannedStrike(strike=Strike.THROTTLED, operation="UpdateItem", at_s=0, count=2),))
    assert found.decide(UPDATE) is None  # not started
    found.start()
    assert found.decide(Call(service="dynamodb", operation="GetItem")) is None
    assert [isinstance(found.decide(UPDATE), Answer) for _ in range(3)] == [True, True, False]
    assert found.injected == {Strike.THROTTLED: 2}


def test_strike_waits_for_its_time() -> None:
    found = injector(strikes=(PlannedStrike(strike=Strike.KILL_AFTER, operation="UpdateItem", at_s=900, count=1),))
    found.start()
    assert found.decide(UPDATE) is None


def test_strike_at_functions_leaves_clients_alone_whatever_they_call() -> None:
    found = injector(strikes=(PlannedStrike(strike=Strike.KILL_BEFORE, operation="PutObject", at_s=0, count=1),))
    found.start()
    assert found.decide(Call(service="api", operation="PutObject")) is None
    assert found.decide(PUT_A) == Kill(is_applied=False)


@pytest.mark.parametrize("fault", [ZoneFault.MISSING, ZoneFault.REFUSING, ZoneFault.HANGING, ZoneFault.SLOW])
def test_outage_breaks_its_zone_only_until_the_faults_stop(fault: ZoneFault) -> None:
    found = injector(outages=(ZoneOutage(zone="a", fault=fault, start_s=0, end_s=900),))
    found.start()
    hit = found.decide(PUT_A)
    assert hit is not None
    assert found.decide(PUT_B) is None
    found.stop()
    assert found.decide(PUT_A) is None
    assert not isinstance(hit, Hang) or hit.is_over.is_set()


def test_lost_zone_has_no_bucket_and_the_others_have() -> None:
    found = injector()
    found.lose("b")
    assert found.decide(PUT_A) is None
    lost = found.decide(PUT_B)
    assert isinstance(lost, Answer)
    assert b"NoSuchBucket" in lost.body


ZONES = ("a", "b", "c")


def test_plan_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    assert make_plan(7, 120, ZONES) == make_plan(7, 120, ZONES)
    assert make_plan(7, 120, ZONES).strikes != make_plan(8, 120, ZONES).strikes


def test_plan_has_as_many_strikes_as_it_is_told() -> None:
    counts = [len(make_plan(7, 1_000, ZONES, strikes_per_s).strikes) for strikes_per_s in (0.5, 5.0)]
    assert 400 < counts[0] < 600
    assert 4_500 < counts[1] < 5_500


@pytest.mark.parametrize("seed", range(20))
def test_plan_never_breaks_two_zones_at_a_time_nor_anything_after_its_end(seed: int) -> None:
    plan = make_plan(seed, 60, ZONES)
    assert all(before.end_s < after.start_s for before, after in pairwise(plan.outages))
    assert all(outage.start_s < outage.end_s <= 60 for outage in plan.outages)
    assert all(0 < strike.at_s < 60 for strike in plan.strikes)


@pytest.mark.parametrize("seed", range(20))
def test_plan_of_two_minutes_has_every_kind_of_fault(seed: int) -> None:
    plan = make_plan(seed, 120, ZONES)
    assert {outage.fault for outage in plan.outages} == set(ZoneFault)
    assert {planned.strike for planned in plan.strikes} == set(Strike)


DELIVERED = PushFigures(records=1, buried=0, repeats=0, failures=0)
NOTHING = PushFigures(records=0, buried=3, repeats=0, failures=3)


def clients(*, is_push_only: bool) -> Clients:
    return Clients(target=cast(Any, None), pushes=cast(Any, None), seed=1, is_push_only=is_push_only)


def verdict(subscriptions: dict[str, PushFigures], commits: int = 0) -> Verdict:
    """A verdict on these figures."""
    report = Report(
        found={},
        examples=(),
        explained=(),
        counts=Counts(commits=commits),
        worst_lag=(),
        worst_empty_lag=(),
        lateness=cast(Any, None),
        subscriptions=subscriptions,
    )
    return Verdict(
        history=report, acknowledged=0, truncated=0, failed=0, unknown=0, lost=0, tail_lag_ms=0.0, violations=()
    )


def test_each_subscription_must_have_delivered_something() -> None:
    everything = dict.fromkeys(DRAINED, DELIVERED)
    assert clients(is_push_only=True).undone(verdict(everything)) == []
    [wrong] = clients(is_push_only=True).undone(verdict({**everything, MIRROR: NOTHING}))
    assert wrong == "subscription mirror has delivered nothing"
    del everything[MIRROR]
    assert clients(is_push_only=True).undone(verdict(everything)) == [wrong]


def test_group_must_have_committed_unless_only_subscriptions_work() -> None:
    everything = dict.fromkeys(DRAINED, DELIVERED)
    [wrong] = clients(is_push_only=False).undone(verdict(everything))
    assert "commit" in wrong
    assert clients(is_push_only=False).undone(verdict(everything, commits=1)) == []


def test_run_of_subscriptions_alone_is_warm_without_fetches_and_has_no_share_workers() -> None:
    injector = Injector(Plan(seed=0, seconds=1, outages=(), strikes=()), {})
    for _ in range(40):
        injector.decide(Call(service="api", operation="POST /v1/produce"))
    assert clients(is_push_only=True).is_warm(injector)
    assert not clients(is_push_only=False).is_warm(injector)
    assert clients(is_push_only=True).slots() == ()
    assert clients(is_push_only=False).slots() != ()


ERROR = {"code": "STORAGE_UNAVAILABLE", "message": "away"}


class Answering:
    """A transport that gives one answer, or raises it."""

    def __init__(self, answer: Response | Exception) -> None:
        self._answer = answer

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def close(self) -> None:
        return


def produce(answer: Response | Exception) -> list[dict[str, object]]:
    """Return the lines that a request with "v0" to partition 0 and "v1" to partition 1 leaves."""
    batches = [encode([NewRecord(0, None, make_value(name, 50))]) for name in ("v0", "v1")]
    header = {
        "acks": "all",
        "batches": [{"topic": "orders", "partition": n, "length": len(each)} for n, each in enumerate(batches)],
    }
    stream = io.BytesIO()
    transport = RecordingTransport(Answering(answer), Recorder(stream), "p1")
    try:
        transport.call("POST", "/v1/produce", {}, {}, frame.encode(header, batches))
    except ConnectionFailedError:
        assert isinstance(answer, Exception)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def results(*each: Mapping[str, object]) -> Response:
    return Response(200, {}, json.dumps({"results": each}).encode())


def test_every_partition_is_an_operation_of_its_own_with_its_offsets() -> None:
    lines = produce(results({"base_offset": 5, "next_offset": 6}, {"error": {**ERROR, "maybe_applied": False}}))
    assert [(line["type"], line.get("acks")) for line in lines[:2]] == [("invoke", "all"), ("invoke", "all")]
    assert lines[0]["ops"] == [["send", "orders", 0, "v0", None]]
    assert (lines[2]["type"], lines[2]["ops"]) == ("ok", [["send", "orders", 0, "v0", 5]])
    assert lines[3]["type"] == "fail"


@pytest.mark.parametrize(
    "answer",
    [
        results(*[{"error": {**ERROR, "maybe_applied": True}}] * 2),
        Response(502, {}, b"Bad Gateway"),
        ConnectionFailedError("reset", maybe_applied=True),
    ],
    ids=["said so", "gateway", "no answer"],
)
def test_what_may_have_been_applied_is_a_maybe_of_one_attempt(answer: Response | Exception) -> None:
    assert [(line["type"], line["attempts"]) for line in produce(answer)[2:]] == [("info", 1), ("info", 1)]


@pytest.mark.parametrize(
    "answer",
    [
        Response(503, {}, json.dumps({"error": {**ERROR, "maybe_applied": False}}).encode()),
        ConnectionFailedError("refused", maybe_applied=False),
    ],
    ids=["refused", "never sent"],
)
def test_what_was_certainly_not_applied_is_a_fail(answer: Response | Exception) -> None:
    assert [line["type"] for line in produce(answer)[2:]] == ["fail", "fail"]


def test_damaged_values_are_named_as_nobody_named_them() -> None:
    value = make_value("p-1", 40)
    assert name_of(value) == "p-1"
    assert name_of(value[:-1] + b"?").startswith("not a value")
    assert name_of(None).startswith("not a value")
