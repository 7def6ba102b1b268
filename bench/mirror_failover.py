"""Kill what runs in two stages that mirror a topic, fail over between them, and compare their logs byte by byte.

Each stage is a `penstock dev` with a data folder, so a kill ends all functions of that side. With `--stacks` each is a
deployed local stack, and a kill ends one function of either side. Producers and a group know both stages. A planned
failover comes under load, and loses nothing. Then the roles turn, and the source is lost: a killed service, or a stack
that stands still, and goes on after the promotion.
Exit code 0: the logs are equal, nothing is lost or doubled, and what a lost source had not pushed is what the report
says.
"""

import json
import os
import random
import signal
import socket
import statistics
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

from bench.processes import Process, tree
from bench.report.recording import Report, reported
from bench.report.result import Row
from localstack.clients import ACCOUNT, client
from penstock import Admin, Consumer, Producer, TopicPartition
from penstock.http.http_message import BATCHES_TYPE, JSON_TYPE, HttpRequest, framed_answer
from penstock.http.transport import open_transport
from penstock_core.errors import PenstockError
from penstock_core.records.record_batch import walk

PARTITIONS, PRODUCERS = 6, 4
_REGION = "us-east-1"  # that `penstock dev` signs for
_PATIENCE_S = 240
_READ_S = 120  # that a reader may be behind: a killed function may cost 75 s
_PAUSE_S_MAX = 15.0
_LAG_P50_S_MAX, _LAG_P99_S_MAX = 2.0, 10.0
_FETCH_BYTES = 1_000_000
_TOPIC, _SLOW_TOPIC = "orders", "trickle"
_SPARED_S = 10.0  # a function that dies while it starts takes along all that start with it in the emulator
_ROLE, _OPERATOR = "penstock-mirror", "penstock-bench"
_TARGETS_ROLE = f"arn:aws:iam::{ACCOUNT}:role/penstock-targets-{_REGION}"


@click.command(help=__doc__)
@reported("mirror_failover")
@click.option("--stacks", "on_stacks", is_flag=True, help="Deployed local stacks in place of `penstock dev`.")
@click.option("--rate", default=2_000, show_default=True, help="Records a second, of all producers.")
@click.option("--slow-rate", default=50, show_default=True, help="Appends a second, while the lag is measured.")
@click.option("--seconds", default=60, show_default=True, help="Of either traffic, while sides are killed.")
@click.option("--kill-each", "kill_each_s", default=5.0, show_default=True, help="Seconds between two kills.")
def main(report: Report, on_stacks: bool, rate: int, slow_rate: int, seconds: int, kill_each_s: float) -> None:
    with tempfile.TemporaryDirectory() as folder, two_sides(Path(folder), on_stacks=on_stacks) as (a, b):
        for topic in (_TOPIC, _SLOW_TOPIC):
            a.admin().create_topic(topic, partitions=PARTITIONS)
        a.admin().create_mirror(
            "dr", [_TOPIC, _SLOW_TOPIC], b.url, source=a.url, region=_REGION if b.role else "", role=b.role
        )
        slow = Load(urls=[a.url, b.url], rate=slow_rate, topic=_SLOW_TOPIC)
        with lag_at(b, slow) as lags, slow.running():
            kills = _kill_in_turns([a, b], seconds, kill_each_s)
        lag: dict[str, int | float] = {"records": len(slow.sent), "seen": len(lags), "kills": kills, **_quantiles(lags)}
        report.show(f"lag at {slow_rate} appends a second", [{**lag}])
        load = Load(urls=[a.url, b.url], rate=rate, topic=_TOPIC)
        with load.running():
            kills = _kill_in_turns([a, b], seconds, kill_each_s)
            caught_up_s = _wait_for_the_mirror(a, rate)
            began_s = time.monotonic()
            promoted = _run(b, "mirrors", "promote", _TOPIC, "--yes", "--wait", str(_PATIENCE_S))
            promoted_s = time.monotonic()
            time.sleep(5)
        click.echo(promoted, err=True)
        pause_s = load.longest_pause_s(began_s, promoted_s + 5)
        planned = {**_judge(load, a, b, kills, pause_s), "caught_up_s": caught_up_s}
        report.show("planned failover under load", [planned])
        lost = _lose(a, b, rate)
    report.show("a lost source", [lost])
    report.judge(
        holds=float(planned["pause_s"] or 0) <= _PAUSE_S_MAX
        and not any(planned[name] for name in ("lost", "doubled", "differs", "not_read"))
        and not lost["differs"]
        and not lost["lost_untold"]
        and bool(lost["acknowledged"])
        and float(lost["lost"] or 0) <= float(lost["told_lost"] or 0)
        and lag["records"] == lag["seen"]
        and lag["p50_s"] <= _LAG_P50_S_MAX
        and lag["p99_s"] <= _LAG_P99_S_MAX
    )


class Side:
    """A stage of which something may be killed. `role` is the one under which another stage calls it, "" for none."""

    url = ""
    role = ""

    def strike(self, chance: random.Random) -> str:
        """Kill something that comes back by itself, or is brought back. Returns what, "" if there was nothing."""
        raise NotImplementedError

    def lose(self) -> None:
        """No call is answered any more."""
        raise NotImplementedError

    def find(self) -> None:
        """It answers again, with its data."""
        raise NotImplementedError

    def end(self) -> None:
        """Stop it for ever."""
        raise NotImplementedError

    @property
    def environment(self) -> Mapping[str, str]:
        """The keys and the URL of the side."""
        raise NotImplementedError

    def admin(self) -> Admin:
        """Its operator."""
        return Admin(transport=open_transport(self.url, _REGION))

    def batches(self, topic: str, partition: int) -> Iterator[tuple[int, bytes]]:
        """The base offset and the bytes of each batch, as it is stored."""
        transport, offset = open_transport(self.url, _REGION), 0
        end = self.admin().list_offsets(topic, "latest").get(partition, 0) or 0
        while offset < end:
            wanted = {"topic": topic, "partition": partition, "offset": offset, "max_bytes": _FETCH_BYTES}
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


class Service(Side):
    """A `penstock dev` that comes back with its data and its port."""

    def __init__(self, folder: Path, keys_of: Path | None) -> None:
        folder.mkdir()
        self._folder, self._keys_of = folder, keys_of
        self._process: subprocess.Popen[str] | None = None
        self.find()

    def find(self) -> None:
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

    def lose(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def strike(self, chance: random.Random) -> str:  # noqa: ARG002  # there is one process
        self.lose()
        self.find()
        return "service"

    def end(self) -> None:
        self.lose()

    @property
    def environment(self) -> Mapping[str, str]:
        return _read(self._folder / ".penstock" / "local.env")


class Stack(Side):
    """A deployed local stack. Its roles are those of one account, and `sessions` is the folder of their sessions."""

    role = f"arn:aws:iam::{ACCOUNT}:role/{_ROLE}"

    def __init__(self, folder: Path, sessions: Path) -> None:
        self._folder, self._sessions = folder, sessions
        self._localstack("up", "--port", str(_free_port()))
        status = json.loads(self._localstack("status", "--json"))
        self.url, self._pid = str(status["url"]), int(status["pid"])
        self._port = int(status["port"])

    def operator(self) -> Mapping[str, str]:
        """Keys of the operator of all stacks that share sessions."""
        role = f"arn:aws:iam::{ACCOUNT}:role/{_OPERATOR}"
        keys = client("sts", self._port).assume_role(RoleArn=role, RoleSessionName="bench")["Credentials"]
        return {
            "AWS_ACCESS_KEY_ID": keys["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
            "AWS_SESSION_TOKEN": keys["SessionToken"],
            "AWS_REGION": _REGION,
            "PENSTOCK_TRANSPORT": "http",  # `auto` invokes functions at the one endpoint of AWS_ENDPOINT_URL
        }

    def strike(self, chance: random.Random) -> str:
        alive = [each for each in tree(self._pid)[1:] if _age_s(each) > _SPARED_S]
        if not alive:
            return ""
        victim = chance.choice(alive)
        name = _function_of(victim)
        victim.kill()
        return name

    def lose(self) -> None:
        os.killpg(self._pid, signal.SIGSTOP)

    def find(self) -> None:
        os.killpg(self._pid, signal.SIGCONT)

    def end(self) -> None:
        self.find()
        self._localstack("down")

    @property
    def environment(self) -> Mapping[str, str]:
        return {"PENSTOCK_URL": self.url}

    def _localstack(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "localstack", *arguments, "--state-dir", str(self._folder)]
        environment = _with_modules({"PENSTOCK_SESSIONS": str(self._sessions)})
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise click.ClickException(f"{' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def make_roles(self) -> None:
        """The role by which other stages push here, as docs/how-to/mirror.md has it, and that of the operator."""
        iam = client("iam", self._port)
        root = f"arn:aws:iam::{ACCOUNT}:root"
        external = {"StringEquals": {"sts:ExternalId": _TARGETS_ROLE}}
        pushes = _allow("execute-api:Invoke", f"arn:aws:execute-api:{_REGION}:{ACCOUNT}:*/*/POST/v1/mirrors/*")
        for name, trusted, condition, policy in (
            (_ROLE, _TARGETS_ROLE, external, pushes),
            (
                _OPERATOR,
                root,
                {},
                _allow(["execute-api:Invoke", "appsync:EventConnect", "appsync:EventSubscribe"], "*"),
            ),
        ):
            trust = _allow("sts:AssumeRole", None, Principal={"AWS": trusted}, Condition=condition)
            iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)
            iam.put_role_policy(RoleName=name, PolicyName="only", PolicyDocument=policy)
        may_push = _allow("sts:AssumeRole", self.role)  # as the setting `mirror_roles`
        iam.put_role_policy(RoleName=_TARGETS_ROLE.rpartition("/")[2], PolicyName="Mirrors", PolicyDocument=may_push)


def _allow(action: str | Sequence[str], resource: str | None, **more: object) -> str:
    of = {} if resource is None else {"Resource": resource}
    statement = {"Effect": "Allow", "Action": action, **of, **{name: each for name, each in more.items() if each}}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def _age_s(process: Process) -> float:
    up_s = float(Path("/proc/uptime").read_text().split()[0])
    return up_s - process.started / os.sysconf("SC_CLK_TCK")


def _function_of(process: Process) -> str:
    with suppress(OSError):
        for each in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
            name, _, value = each.partition(b"=")
            if name == b"AWS_LAMBDA_FUNCTION_NAME":
                return value.decode()
    return "?"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _read(path: Path) -> Mapping[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)


@contextmanager
def two_sides(folder: Path, *, on_stacks: bool) -> Iterator[tuple[Side, Side]]:
    """Two stages that take the keys of this process."""
    started: list[Side] = []
    os.environ.pop("PENSTOCK_URL", None)
    try:
        if on_stacks:
            sessions = folder / "sessions"
            sessions.mkdir()
            stacks = [Stack(folder / each, sessions) for each in "ab"]
            started += stacks
            for each in stacks:
                each.make_roles()
            keys = stacks[0].operator()
        else:
            started += [Service(folder / "a", None)]
            keys = started[0].environment
            started += [Service(folder / "b", folder / "a")]
        os.environ.update(keys)
        os.environ.pop("PENSTOCK_URL", None)
        yield started[0], started[1]
    finally:
        for side in started:
            side.end()


@dataclass(kw_only=True)
class Load:
    """Producers of numbered records, and a group that reads them. All know both stages."""

    urls: Sequence[str]
    rate: int
    topic: str
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
                delivery = to.send(self.topic, value, partition=random.randrange(PARTITIONS))
                delivery.add_done_callback(lambda _: self.acked_s.append(time.monotonic()))
                self.sent.append((time.monotonic(), delivery, value))
                count += 1
                time.sleep(max(0.0, began_s + count * each_s - time.monotonic()))

    def _consume(self) -> None:
        with Consumer(
            self.topic,
            urls=self.urls,
            region=_REGION,
            group_id=f"readers.{self.topic}",
            auto_offset_reset="earliest",
        ) as consumer:
            while not self._has_read.is_set():
                with suppress(PenstockError):
                    for record in consumer.poll(timeout_ms=200):
                        self.read[bytes(record.value or b"")] += 1


@contextmanager
def lag_at(side: Side, load: Load) -> Iterator[list[float]]:
    """The seconds from the send of each record of the load until a reader of this side has it."""
    lags: list[float] = []
    is_over = threading.Event()

    def read() -> None:
        while not is_over.wait(0.2):
            with suppress(PenstockError):
                if load.topic in {each.name for each in side.admin().list_topics()}:
                    break
        with Consumer(url=side.url, region=_REGION, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(load.topic, each) for each in range(PARTITIONS)])
            while not is_over.is_set():
                with suppress(PenstockError):
                    records = consumer.poll(timeout_ms=200)
                    lags.extend(time.time() - each.timestamp_ms / 1_000 for each in records)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield lags
        deadline_s = time.monotonic() + _READ_S
        while len(lags) < len(load.sent) and time.monotonic() < deadline_s:
            time.sleep(0.2)
    finally:
        is_over.set()
        reader.join()


def _quantiles(lags: Sequence[float]) -> Mapping[str, float]:
    if len(lags) < 2:
        raise click.ClickException(f"the mirror's reader got {len(lags)} records in {_READ_S} s")
    cuts = statistics.quantiles(lags, n=100)
    return {"p50_s": round(cuts[49], 2), "p99_s": round(cuts[98], 2), "max_s": round(max(lags), 2)}


def _kill_in_turns(sides: Sequence[Side], seconds: float, each_s: float) -> int:
    ends_s, turns, killed, chance = time.monotonic() + seconds, 0, Counter[str](), random.Random(0)
    while time.monotonic() < ends_s:
        time.sleep(each_s)
        side = turns % len(sides)
        victim = sides[side].strike(chance)
        turns += 1
        if victim:
            killed[f"{'ab'[side]}: {victim}"] += 1
    click.echo(f"killed: {dict(killed)}", err=True)
    return killed.total()


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
        for _, data in b.batches(_TOPIC, partition):
            for record in DefaultRecordBatch(data):
                places.setdefault(bytes(record.value), []).append((partition, record.offset))
    again = {value: each for value, each in places.items() if len(each) > 1}
    for value, each in [*again.items()][:5]:
        click.echo(f"{value!r} is at {each}, acknowledged at {wanted.get(value)}", err=True)
    return {
        "records": len(wanted),
        "kills": kills,
        "differs": sum(_differences(a, b, topic) for topic in (_TOPIC, _SLOW_TOPIC)),
        "lost": sum(place not in places.get(value, ()) for value, place in wanted.items()),
        "doubled": sum(len(each) - 1 for each in places.values()),
        "not_read": sum(value not in load.read for value in wanted),
        "read_again": sum(load.read.values()) - len(load.read),
        "pause_s": round(pause_s, 2),
    }


def _differences(source: Side, mirror: Side, topic: str) -> int:
    """The batches of the source that the mirror does not have at their offsets, with the same bytes."""
    found = 0
    for partition in range(PARTITIONS):
        there = dict(mirror.batches(topic, partition))
        found += sum(there.get(base) != data for base, data in source.batches(topic, partition))
    return found


def _lose(old: Side, source: Side, rate: int) -> Row:
    """The old source mirrors the new one, which is lost under load, and promoted without."""
    role = ["--role", old.role, "--here-region", _REGION] if old.role else []
    _run(old, "mirrors", "reverse", _TOPIC, "--name", "back", "--here", old.url, *role, "--yes")
    load = Load(urls=[source.url], rate=rate, topic=_TOPIC)
    deliveries = threading.Thread(target=_swallow, args=(load,))
    deliveries.start()
    time.sleep(10)
    source.lose()
    load._is_over.set()
    told = json.loads(_run(old, "mirrors", "promote", _TOPIC, "--source-lost", "--yes", "--json"))[_TOPIC]
    ends = {each["partition"]: each["promoted_at"] for each in told["partitions"]}
    source.find()
    deliveries.join()
    behind = sum(
        max(0, (end or 0) - ends.get(partition, 0))
        for partition, end in source.admin().list_offsets(_TOPIC, "latest").items()
    )
    differs, there = 0, dict[tuple[int, int], bytes]()
    for partition in range(PARTITIONS):
        of_source = dict(source.batches(_TOPIC, partition))
        for base, data in old.batches(_TOPIC, partition):
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
        load.sent.append((0.0, producer.send(_TOPIC, value, partition=random.randrange(PARTITIONS)), value))
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
