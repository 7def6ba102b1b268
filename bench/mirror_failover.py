"""Kill two services that mirror a topic, fail over between them, and compare their logs byte by byte.

Each service is a `penstock dev` with a data folder, so a kill ends all functions of that side. Producers and a group
know both stages. A planned failover comes under load, and loses nothing. Then the roles turn, and the source is lost.
Exit code 0: the logs are equal, nothing is lost or doubled, and what a lost source had not pushed is what the report
says.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from kafka.record.default_records import DefaultRecordBatch

from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock import Admin, Consumer, Producer
from penstock.http.http_message import BATCHES_TYPE, JSON_TYPE, HttpRequest, framed_answer
from penstock.http.transport import open_transport
from penstock_core.errors import PenstockError
from penstock_core.records.record_batch import walk

PARTITIONS, PRODUCERS = 6, 4
_REGION = "us-east-1"  # that `penstock dev` signs for
_PATIENCE_S = 240
_READ_S = 60  # that the group may be behind
_PAUSE_S_MAX = 15.0
_FETCH_BYTES = 1_000_000


@click.command(help=__doc__)
@reported("mirror_failover")
@click.option("--rate", default=2_000, show_default=True, help="Records a second, of all producers.")
@click.option("--seconds", default=60, show_default=True, help="Of traffic while sides are killed.")
@click.option("--kill-each", "kill_each_s", default=5.0, show_default=True, help="Seconds between two kills.")
def main(report: Report, rate: int, seconds: int, kill_each_s: float) -> None:
    with tempfile.TemporaryDirectory() as folder, two_sides(Path(folder)) as (a, b):
        a.admin().create_topic("orders", partitions=PARTITIONS)
        a.admin().create_mirror("dr", ["orders"], b.url, source=a.url)
        load = Load(urls=[a.url, b.url], rate=rate)
        with load.running():
            kills = _kill_in_turns([a, b], seconds, kill_each_s)
            caught_up_s = _wait_for_the_mirror(a, rate)
            began_s = time.monotonic()
            promoted = _run(b, "mirrors", "promote", "orders", "--yes", "--wait", str(_PATIENCE_S))
            promoted_s = time.monotonic()
            time.sleep(5)
        click.echo(promoted, err=True)
        pause_s = load.longest_pause_s(began_s, promoted_s + 5)
        planned = {**_judge(load, a, b, kills, pause_s), "caught_up_s": caught_up_s}
        lost = _lose(a, b, rate)
    report.show("planned failover under load", [planned])
    report.show("a lost source", [lost])
    report.judge(
        holds=float(planned["pause_s"] or 0) <= _PAUSE_S_MAX
        and not any(planned[name] for name in ("lost", "doubled", "differs", "not_read"))
        and not lost["differs"]
        and not lost["lost_untold"]
        and bool(lost["acknowledged"])
        and float(lost["lost"] or 0) <= float(lost["told_lost"] or 0)
    )


class Side:
    """A `penstock dev` that may be killed, and comes back with its data and its port."""

    def __init__(self, folder: Path, keys_of: Path | None) -> None:
        folder.mkdir()
        self._folder, self._keys_of = folder, keys_of
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.start()

    def start(self) -> None:
        """Start it, on its former port."""
        port = self.url.rpartition(":")[2] or "0"
        keys = [] if self._keys_of is None else ["--keys-of", os.path.relpath(self._keys_of, self._folder)]
        command = ["penstock", "dev", "--json", "--data", "data", "--port", port, *keys]
        self._process = subprocess.Popen(
            command,
            cwd=self._folder,
            env=_with_modules({}),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = str(json.loads(self._process.stdout.readline())["url"])

    def kill(self) -> None:
        """End it as kill -9 does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    @property
    def environment(self) -> Mapping[str, str]:
        """The keys and the URL of the side."""
        lines = (self._folder / ".penstock" / "local.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def admin(self) -> Admin:
        """Its operator."""
        return Admin(transport=open_transport(self.url, _REGION))

    def batches(self, partition: int) -> Iterator[tuple[int, bytes]]:
        """The base offset and the bytes of each batch, as it is stored."""
        transport, offset = open_transport(self.url, _REGION), 0
        end = self.admin().list_offsets("orders", "latest").get(partition, 0) or 0
        while offset < end:
            wanted = {"topic": "orders", "partition": partition, "offset": offset, "max_bytes": _FETCH_BYTES}
            request = HttpRequest(
                method="POST",
                path="/v1/fetch",
                headers={"Content-Type": JSON_TYPE, "Accept": BATCHES_TYPE},
                body=json.dumps({"partitions": [wanted], "max_bytes": _FETCH_BYTES, "wait_ms": 0}).encode(),
                is_read=True,
                is_repeatable=True,
            )
            answer = transport.call(request.method, request.path, {}, request.headers, request.body)
            _, data = framed_answer(request, answer)
            for position, header in walk(data):
                if header.base_offset >= offset:
                    yield header.base_offset, bytes(data[position : position + header.length])
                    offset = header.next_offset


@contextmanager
def two_sides(folder: Path) -> Iterator[tuple[Side, Side]]:
    """Two services with the same keys, which this process has, too."""
    a = Side(folder / "a", None)
    os.environ.update(a.environment)
    os.environ.pop("PENSTOCK_URL", None)
    b = Side(folder / "b", folder / "a")
    try:
        yield a, b
    finally:
        for each in (a, b):
            each.kill()


@dataclass(kw_only=True)
class Load:
    """Producers of numbered records, and a group that reads them. All know both stages."""

    urls: Sequence[str]
    rate: int
    sent: list[tuple[float, Any, bytes]] = field(default_factory=list)
    acked_s: list[float] = field(default_factory=list)
    read: Counter[bytes] = field(default_factory=Counter)
    _is_over: threading.Event = field(default_factory=threading.Event)
    _has_read: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The load during the block, and until all is acknowledged and read."""
        producers = [threading.Thread(target=self._produce, args=(number,)) for number in range(PRODUCERS)]
        reader = threading.Thread(target=self._consume)
        for each in (*producers, reader):
            each.start()
        try:
            yield
        finally:
            self._is_over.set()
            for each in producers:
                each.join()
            deadline_s = time.monotonic() + _READ_S
            while len(self.read) < len(self.sent) and time.monotonic() < deadline_s:
                time.sleep(0.2)
            self._has_read.set()
            reader.join()

    def longest_pause_s(self, began_s: float, ended_s: float) -> float:
        """The longest time between two acknowledgements in this time."""
        times = sorted(each for each in self.acked_s if began_s <= each <= ended_s)
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)

    def _produce(self, number: int) -> None:
        each_s = PRODUCERS / self.rate
        with Producer(urls=self.urls, region=_REGION, linger_ms=20, delivery_timeout_ms=_PATIENCE_S * 1_000) as to:
            began_s, count = time.monotonic(), 0
            while not self._is_over.is_set():
                value = b"%d-%d" % (number, count)
                delivery = to.send("orders", value, partition=random.randrange(PARTITIONS))
                delivery.add_done_callback(lambda _: self.acked_s.append(time.monotonic()))
                self.sent.append((time.monotonic(), delivery, value))
                count += 1
                time.sleep(max(0.0, began_s + count * each_s - time.monotonic()))

    def _consume(self) -> None:
        with Consumer(
            "orders", urls=self.urls, region=_REGION, group_id="readers", auto_offset_reset="earliest"
        ) as consumer:
            while not self._has_read.is_set():
                with suppress(PenstockError):
                    for record in consumer.poll(timeout_ms=200):
                        self.read[bytes(record.value or b"")] += 1


def _kill_in_turns(sides: Sequence[Side], seconds: float, each_s: float) -> int:
    ends_s, kills = time.monotonic() + seconds, 0
    while time.monotonic() < ends_s:
        time.sleep(each_s)
        side = sides[kills % len(sides)]
        side.kill()
        kills += 1
        side.start()
    return kills


def _wait_for_the_mirror(source: Side, rate: int) -> float:
    """The seconds until the mirror lacks a second's records: a killed delivery keeps its lane locked for a minute."""
    began_s = time.monotonic()
    while source.admin().describe_subscription("dr").lag > rate:
        if time.monotonic() - began_s > _PATIENCE_S:
            raise click.ClickException(f"the mirror is behind for {_PATIENCE_S} s")
        time.sleep(0.5)
    return round(time.monotonic() - began_s, 1)


def _judge(load: Load, a: Side, b: Side, kills: int, pause_s: float) -> Row:
    """Compare what was acknowledged with the target's log, and its begin with the source's log."""
    wanted = {value: (delivery.result().partition, delivery.result().offset) for _, delivery, value in load.sent}
    places: dict[bytes, list[tuple[int, int]]] = {}
    for partition in range(PARTITIONS):
        for _, data in b.batches(partition):
            for record in DefaultRecordBatch(data):
                places.setdefault(bytes(record.value), []).append((partition, record.offset))
    again = {value: each for value, each in places.items() if len(each) > 1}
    for value, each in [*again.items()][:5]:
        click.echo(f"{value!r} is at {each}, acknowledged at {wanted.get(value)}", err=True)
    return {
        "records": len(wanted),
        "kills": kills,
        "differs": _differences(a, b),
        "lost": sum(place not in places.get(value, ()) for value, place in wanted.items()),
        "doubled": sum(len(each) - 1 for each in places.values()),
        "not_read": sum(value not in load.read for value in wanted),
        "read_again": sum(load.read.values()) - len(load.read),
        "pause_s": round(pause_s, 2),
    }


def _differences(source: Side, mirror: Side) -> int:
    """The batches of the source that the mirror does not have at their offsets, with the same bytes."""
    found = 0
    for partition in range(PARTITIONS):
        there = dict(mirror.batches(partition))
        found += sum(there.get(base) != data for base, data in source.batches(partition))
    return found


def _lose(old: Side, source: Side, rate: int) -> Row:
    """The old source mirrors the new one, which is lost under load, and promoted without."""
    _run(old, "mirrors", "reverse", "orders", "--name", "back", "--here", old.url, "--yes")
    load = Load(urls=[source.url], rate=rate)
    deliveries = threading.Thread(target=_swallow, args=(load,))
    deliveries.start()
    time.sleep(10)
    source.kill()
    load._is_over.set()
    told = json.loads(_run(old, "mirrors", "promote", "orders", "--source-lost", "--yes", "--json"))["orders"]
    ends = {each["partition"]: each["promoted_at"] for each in told["partitions"]}
    source.start()
    deliveries.join()
    behind = sum(
        max(0, (end or 0) - ends.get(partition, 0))
        for partition, end in source.admin().list_offsets("orders", "latest").items()
    )
    differs, there = 0, dict[tuple[int, int], bytes]()
    for partition in range(PARTITIONS):
        of_source = dict(source.batches(partition))
        for base, data in old.batches(partition):
            differs += base < ends[partition] and of_source.get(base) != data
            there |= {(partition, record.offset): bytes(record.value) for record in DefaultRecordBatch(data)}
    acked = {place: value for _, delivery, value in load.sent if (place := _place_of(delivery)) is not None}
    lost = {place for place, value in acked.items() if there.get(place) != value}
    return {
        "acknowledged": len(acked),
        "differs": differs,
        "lost": len(lost),
        "told_lost": behind,
        "lost_untold": sum(offset < ends[partition] for partition, offset in lost),
        "offsets_committed": told["offsets_committed"],
    }


def _place_of(delivery: Any) -> tuple[int, int] | None:
    """The partition and offset of a record that was acknowledged."""
    error = delivery.exception() if delivery.done() else True
    return None if error else (delivery.result().partition, delivery.result().offset)


def _swallow(load: Load) -> None:
    """Send until the load is over, and note what was acknowledged."""
    producer = Producer(urls=load.urls, region=_REGION, linger_ms=20, delivery_timeout_ms=5_000)
    while not load._is_over.is_set():
        value = b"%0100d" % len(load.sent)
        load.sent.append((0.0, producer.send("orders", value, partition=random.randrange(PARTITIONS)), value))
        time.sleep(1 / load.rate)
    with suppress(PenstockError):
        producer.close()


def _run(side: Side, *arguments: str) -> str:
    done = subprocess.run(
        ["penstock", *arguments], env=_with_modules(side.environment), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise click.ClickException(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def _with_modules(environment: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(os.path.abspath(each) for each in sys.path)}


if __name__ == "__main__":
    main()
