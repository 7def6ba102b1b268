"""Measure what ten readers of the same records cost in one process, against one reader: alone, and as they share.

The parts that decide are those that ship. Calls to storage are captured on a stepped clock, as for `bench.money`. Exit
code 0: ten readers that share take at most 1.5 times the requests, function seconds and gets of one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from bench.bill.deployment import BilledDeployment, billed_deployment, billed_profile
from bench.money.real_run import Stage, subscribe_all
from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock import Admin, Producer
from penstock.consumer.fetch_buffer import FetchBuffer
from penstock.consumer.fetch_call import fetch
from penstock.consumer.settings import ConsumerSettings
from penstock.consumer.shared_reads import SharedReader, SharedReads
from penstock.cost.workload import ANSWER_MS
from penstock.http.steps import drive
from penstock.model import TopicPartition

READERS = 10
_TIMES_MAX = 1.5
_PARTITIONS = 6
_TOPIC = "orders"
_RECORDS_MAX = 500
_KINDS = ("requests", "function_s", "gets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Records that come each `apart_ms`, and that the log has `before` the readers begin."""

    apart_ms: float
    seconds: int
    before: int = 0
    warm_up_s: int = 0  # calls count from then on: a reader asks for itself twice when it starts


TRAFFIC = {
    "10 records a second": Traffic(apart_ms=100, seconds=7, warm_up_s=2),
    "a record each 9 s": Traffic(apart_ms=9_000, seconds=56, warm_up_s=12),
    "a log of 120 records, and 10 a second": Traffic(apart_ms=100, seconds=3, before=120),
}


@click.command(help=__doc__)
@reported("shared_readers")
def main(report: Report) -> None:
    for name, traffic in TRAFFIC.items():
        one = _run(traffic, 1, shares=True)
        sides = {
            "1": one,
            "10, each alone": _run(traffic, READERS, shares=False),
            "10": _run(traffic, READERS, shares=True),
        }
        report.show(name, [_row(readers, counts, one) for readers, counts in sides.items()])
        report.judge(holds=all(sides["10"][kind] <= _TIMES_MAX * one[kind] for kind in _KINDS))
        report.judge(holds=all(counts["records"] == one["records"] for counts in sides.values()))


def _row(readers: str, counts: dict[str, float], one: dict[str, float]) -> Row:
    times = {f"{kind}, times one": round(counts[kind] / one[kind], 2) for kind in _KINDS}
    return {"readers": readers, **{name: round(value, 2) for name, value in counts.items()}, **times}


def _run(traffic: Traffic, readers: int, *, shares: bool) -> dict[str, float]:
    """The cost of all readers, the records that each of them got, and their mean lateness."""
    with billed_deployment(billed_profile("express3")) as deployment:
        stage = Stage(deployment)
        with Admin(transport=deployment) as admin:
            admin.create_topic(_TOPIC, partitions=_PARTITIONS)
        producer = Producer(transport=deployment, linger_ms=60_000, compression_type="none")
        sending = _Sending(stage, producer, traffic)
        for _ in range(traffic.before):
            sending.send(0.0)
        shared = SharedReads() if shares else None
        reading = [_Reading(stage, shared) for _ in range(readers)]
        stage.add(sending.step, 0.0)
        for each in reading:
            stage.add(each.step)
        stage.run_until(traffic.warm_up_s * 1_000)
        for each in reading:
            each.forget()
        deployment.take()
        stage.run_until(traffic.seconds * 1_000 + 5_000)
        producer.close()
        if len({each.records for each in reading}) != 1:
            raise click.ClickException("the readers got different records")
        late = [ms for each in reading for ms in each.late_ms]
        counts = {kind: sum(each.counts[kind] for each in reading) for kind in _KINDS}
        return {**counts, "records": reading[0].records, "late_ms": sum(late) / len(late)}


class _Sending:
    """Sends a record to each partition in turn. Its value is its time."""

    def __init__(self, stage: Stage, producer: Producer, traffic: Traffic) -> None:
        self._stage, self._producer, self._traffic = stage, producer, traffic
        self._sent = 0

    def send(self, now_ms: float) -> None:
        self._producer.send(_TOPIC, b"%d" % now_ms + b" " * 1_000, partition=self._sent % _PARTITIONS)
        self._stage.carry(now_ms, self._producer.flush)
        self._sent += 1

    def step(self, now_ms: float) -> float | None:
        self.send(now_ms)
        again_ms = now_ms + self._traffic.apart_ms
        return again_ms if again_ms < self._traffic.seconds * 1_000 else None


class _Reading:
    """A consumer without a group, whose application takes no time."""

    def __init__(self, stage: Stage, shared: SharedReads | None) -> None:
        self._stage = stage
        self._buffer = FetchBuffer(ConsumerSettings().fetch())
        partitions = [TopicPartition(_TOPIC, number) for number in range(_PARTITIONS)]
        self._buffer.assign(partitions)
        for each in partitions:
            self._buffer.seek(each, 0)
        self._now_ms = 0.0
        self._is_watched = False
        self.counts = dict.fromkeys(_KINDS, 0.0)
        self.records = 0
        self.late_ms: list[float] = []
        self._sharing = None if shared is None else SharedReader(shared, self._wake)
        if self._sharing is not None:
            self._buffer.share(self._sharing)

    def forget(self) -> None:
        """Count anew."""
        self.counts = dict.fromkeys(_KINDS, 0.0)
        self.late_ms = []

    def step(self, now_ms: float) -> float:
        """Send what the client would send now, and return when it looks again, if nothing happens before."""
        self._subscribe()
        while (request := self._buffer.next_request(int(now_ms))) is not None:
            answer = self._counted(now_ms, partial(drive, fetch(request), self._stage.client.try_once))
            took_ms = 0 if request.kept is not None else ANSWER_MS
            self._stage.add(partial(self._fetched, request, answer), now_ms + took_ms)
        return min(self._buffer.wake_at_ms, now_ms + 60_000)

    def _counted(self, now_ms: float, call: Callable[[], Any]) -> Any:
        deployment: BilledDeployment = self._stage.deployment
        others = deployment.take()
        answer = self._stage.carry(now_ms, call)
        bill = deployment.take()
        deployment.bill = others
        self.counts["requests"] += bill.requests
        self.counts["function_s"] += bill.function_ms / 1_000
        self.counts["gets"] += sum(count for name, count in bill.calls.items() if "GetObject" in name)
        return answer

    def _fetched(self, request: Any, answer: Any, now_ms: float) -> None:
        self._buffer.complete(request, answer, int(now_ms), self._stage.chance.random())
        while taken := self._buffer.take(_RECORDS_MAX):
            self.records += len(taken)
            self.late_ms += [now_ms - int(each.value or b"") for each in taken]
        self._look(now_ms)

    def _look(self, now_ms: float) -> None:
        self._stage.add(self._once, max(self.step(now_ms), now_ms + 1))

    def _once(self, now_ms: float) -> None:
        self.step(now_ms)

    def _wake(self) -> None:
        self._stage.add(self._once, self._stage.now_ms)

    def _subscribe(self) -> None:
        watch = self._buffer.waiting.watch
        if watch is None or not watch.leaves:
            return
        if not self._is_watched:
            self._is_watched = True
            self._stage.watches.append((watch, self._buffer.woken, self._once))
        if subscribe_all(watch):
            self._buffer.look_again()


if __name__ == "__main__":
    main()
