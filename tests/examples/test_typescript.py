"""examples/typescript: built as its README says, and run by node on `penstock dev`, also where answers are lost."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock import Admin, Consumer
from penstock.configuration import Configuration, StaticCredentials
from penstock.http.transport import HttpTransport
from penstock_core.records.partitioner import partition_for_key
from tests.support.child_process import child_process
from tests.support.conformance import CONFORMANCE, scenarios
from tests.support.deadlines import DEADLINE_S, PAUSE_S, until

CHECKOUT = Path(__file__).parents[2]
EXAMPLE = Path("examples", "typescript")
FAULTS = Path(__file__).with_name("fetch_faults.mjs")
FAKE = Path(__file__).with_name("worker_on_a_fake.mjs")
LOCK_MS = 1_000  # the shortest
HOUR_MS = 3_600_000
SCRIPT = "import sys; sys.path[:0] = {paths!r}; sys.argv[0] = 'penstock'; from penstock.cli import main; main()"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's folder in a copy of the checkout, after `npm run build`."""
    assert (CHECKOUT / "node_modules" / "openapi-fetch").exists(), "the packages of the example are missing: make setup"
    copy = tmp_path_factory.mktemp("checkout")
    shutil.copytree(CHECKOUT / EXAMPLE, copy / EXAMPLE, ignore=shutil.ignore_patterns("openapi.ts", "dist"))
    for name in ("docs", "node_modules"):
        (copy / name).symlink_to(CHECKOUT / name)
    done = subprocess.run(
        ["npm", "run", "build"], cwd=copy / EXAMPLE, capture_output=True, text=True, timeout=DEADLINE_S * 5, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return copy / EXAMPLE


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """What `penstock dev` on a free port writes for programs."""
    folder = tmp_path_factory.mktemp("dev")
    script = SCRIPT.format(paths=[each for each in sys.path if each])
    command = [sys.executable, "-c", script, "dev", "--port", "0", "--json", "--no-console"]
    with child_process(command, cwd=folder, stdout=subprocess.PIPE, text=True, deadline_s=DEADLINE_S * 10) as server:
        assert server.stdout is not None
        assert json.loads(server.stdout.readline())["url"]
        lines = (folder / ".penstock" / "local.env").read_text().splitlines()
        yield dict(line.split("=", 1) for line in lines if "=" in line)
        server.send_signal(signal.SIGTERM)
        assert server.wait(DEADLINE_S) == 0


@dataclass(frozen=True)
class Node:
    """Runs programs of the example."""

    built: Path
    variables: Mapping[str, str]
    folder: Path

    @property
    def transport(self) -> HttpTransport:
        """A way to the same server for the SDK."""
        keys = StaticCredentials(self.variables["AWS_ACCESS_KEY_ID"], self.variables["AWS_SECRET_ACCESS_KEY"])
        return HttpTransport(
            Configuration(url=self.variables["PENSTOCK_URL"], region=self.variables["AWS_REGION"], credentials=keys)
        )

    def run(self, program: str, *words: str, lines: Sequence[str] = (), **faults: str) -> tuple[int, str]:
        """The exit code, and what it says."""
        done = subprocess.run(
            self._command(program, *words),
            env=self._environment(faults),
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    @contextmanager
    def started(self, program: str, *words: str, **faults: str) -> Iterator["Started"]:
        with (
            self.said.open("w") as said,
            child_process(self._command(program, *words), env=self._environment(faults), stdout=said) as process,
        ):
            yield Started(process, self.said, self.requests)

    @property
    def said(self) -> Path:
        return self.folder / "said"

    @property
    def requests(self) -> Path:
        return self.folder / "requests"

    def _command(self, program: str, *words: str) -> list[str]:
        return ["node", "--import", FAULTS.as_uri(), str(self.built / "dist" / f"{program}.js"), *words]

    def _environment(self, faults: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PENSTOCK_"))}
        return {**kept, **self.variables, "FETCH_LOG": str(self.requests), **faults}


@dataclass(frozen=True)
class Started:
    process: "subprocess.Popen[bytes]"
    said: Path
    requests: Path

    def stop(self) -> None:
        """SIGTERM: it ends by itself, and says so by its exit code."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(DEADLINE_S) == 0

    def until_says(self, text: str, count: int = 1) -> None:
        until(lambda: self.said.read_text().count(text) >= count, step=self._step, shown=self.said.read_text)

    def asked_at_ms(self, path: str) -> list[int]:
        """When it sent requests with that end."""
        lines = self.requests.read_text().splitlines() if self.requests.exists() else []
        return [int(line.split()[0]) for line in lines if line.endswith(path)]

    def until_asks(self, path: str, count: int) -> None:
        until(lambda: len(self.asked_at_ms(path)) >= count, step=self._step, shown=self.requests.read_text)

    def _step(self) -> None:
        assert self.process.poll() is None, f"it has ended by itself: {self.process.returncode}"
        time.sleep(PAUSE_S)


@pytest.fixture
def node(built: Path, variables: Mapping[str, str], tmp_path: Path) -> Node:
    return Node(built, variables, tmp_path)


@pytest.fixture
def admin(node: Node) -> Admin:
    return Admin(transport=node.transport)


def test_sources_trust_the_generated_types() -> None:
    sources = list((CHECKOUT / EXAMPLE / "src").glob("*.ts"))
    assert len(sources) >= 6
    for source in sources:
        if source.name != "openapi.ts":
            assert not re.search(r"\bany\b(?!.*\*/)[;,)>\]]|@ts-|as unknown|eslint", source.read_text()), source


def test_service_conforms_for_a_client_in_typescript(node: Node) -> None:
    code, said = node.run("conformance", str(CONFORMANCE))
    assert (code, said.splitlines()) == (0, [f"ok {name}" for name in scenarios()])


def test_conformance_ends_with_1_if_an_answer_is_another_one(node: Node, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    step = {"method": "GET", "path": "/v1/topics", "status": 200, "answer": {"topics": [{"name": "none"}]}}
    wrong.write_text(json.dumps({"scenarios": [{"name": "wrong", "steps": [step]}]}))
    code, said = node.run("conformance", str(wrong))
    assert code == 1
    assert "not ok wrong: Error: answer.topics is " in said


def test_producer_stores_each_record_once_in_the_partition_of_its_key_though_answers_are_lost(
    node: Node, admin: Admin
) -> None:
    admin.create_topic("lines", partitions=3)
    keys = [f"k{'é' * (number % 7)}{number % 40}" for number in range(1_200)]
    code, said = node.run(
        "produce", "lines", lines=[f"{key}\t{number}" for number, key in enumerate(keys)], LOSE_EVERY="2"
    )
    assert (code, said) == (0, "sent 1200 records\n")
    with Consumer("lines", transport=node.transport, auto_offset_reset="earliest", consumer_timeout_ms=500) as consumer:
        records = list(consumer)
    assert sorted(int(each.value or b"") for each in records) == list(range(1_200))
    for partition in range(3):
        numbers = [int(each.value or b"") for each in records if each.partition == partition]
        assert numbers == sorted(numbers)
        assert all(partition_for_key(keys[number].encode(), 3) == partition for number in numbers)


def test_producer_ends_with_what_the_service_says_of_a_topic_that_is_missing(node: Node) -> None:
    code, said = node.run("produce", "missing", lines=["x"])
    assert code != 0
    assert "UNKNOWN_TOPIC: topic 'missing' does not exist" in said


@pytest.mark.parametrize("lose_every", ["", "3"])
def test_worker_accepts_retries_and_rejects(node: Node, admin: Admin, lose_every: str) -> None:
    topic, dead, group = (f"{name}{lose_every}" for name in ("orders", "dead", "workers"))
    for name in (topic, dead):
        admin.create_topic(name)
    admin.create_share_group(group, topic, {"dead_letter_topic": dead, "retry_backoff_ms_min": 1})
    orders = [json.dumps({"id": number, "fails": 1 if number == 4 else 0}) for number in range(20)]
    node.run("produce", topic, lines=[*orders, "no order", json.dumps({"id": 20, "fails": 9})])

    with node.started("work", group, LOSE_EVERY=lose_every) as worker:
        worker.until_says("has done", 20)
        until(lambda: _left(admin, group) == 0, shown=worker.said.read_text)
        worker.stop()

    done = Counter(line for line in worker.said.read_text().splitlines() if line.startswith("has done"))
    assert done == Counter(f"has done order {number}" for number in range(20))
    with Consumer(dead, transport=node.transport, auto_offset_reset="earliest", consumer_timeout_ms=500) as consumer:
        letters = {each.value: dict(each.headers)["penstock.dead-letter.reason"] for each in consumer}
    assert letters == {
        b"no order": b"Error: not an order",
        orders[0].replace('"id": 0, "fails": 0', '"id": 20, "fails": 9').encode(): b"deliveries: Error: try 5 of order "
        b"20 has failed",
    }


def test_worker_keeps_its_locks_while_it_works(node: Node, admin: Admin) -> None:
    admin.create_topic("slow")
    admin.create_share_group("slow", "slow", {"lock_ms": LOCK_MS})
    node.run("produce", "slow", lines=['{"id": 1, "ms": 2500}', '{"id": 2}'])
    with node.started("work", "slow") as worker, node_of(node, "rival").started("work", "slow") as rival:
        until(lambda: (worker.said.read_text() + rival.said.read_text()).count("has done") == 2)
        until(lambda: _left(admin, "slow") == 0)
        worker.stop()
        rival.stop()
    begun = Counter(line for each in (worker, rival) for line in each.said.read_text().splitlines() if "begins" in line)
    assert begun == {"begins 0 0, delivery 1": 1, "begins 0 1, delivery 1": 1}
    assert len(worker.asked_at_ms("/acknowledge") + rival.asked_at_ms("/acknowledge")) >= 4, "renewals among them"


def test_worker_gives_back_uncounted_what_it_has_not_begun_when_it_is_stopped(node: Node, admin: Admin) -> None:
    admin.create_topic("stopped")
    admin.create_share_group("stopped", "stopped")
    node.run("produce", "stopped", lines=[json.dumps({"id": number, "ms": 300}) for number in range(8)])
    with node.started("work", "stopped") as worker:
        worker.until_says("begins")
        worker.stop()
    first = worker.said.read_text()
    done = first.count("has done")
    assert first.count("begins") == done, "it finishes what it has in hand"
    assert 1 <= done < 8
    [partition] = admin.describe_share_group("stopped").partitions
    assert (partition.in_flight, partition.available) == (0, 8 - done)
    with node_of(node, "next").started("work", "stopped") as following:
        following.until_says("has done", 8 - done)
        following.stop()
    begun = re.findall(r"begins 0 (\d), delivery (\d)", first + following.said.read_text())
    assert begun == [(str(number), "1") for number in range(8)]


def _on_a_fake(built: Path, **scenario: object) -> list[str]:
    """What the worker does with two records of a fake service, which refuses the first verdict."""
    command = ["node", str(FAKE), str(built / "dist" / "worker.js")]
    told = json.dumps({"lockMs": HOUR_MS, "untilMsLeft": [HOUR_MS, HOUR_MS], **scenario})
    done = subprocess.run([*command, told], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("refuses_all", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_worker_repeats_a_verdict_that_did_not_arrive_and_gives_back_only_what_it_has_not_begun(
    built: Path, *, fails: bool, refuses_all: bool
) -> None:
    verdict = (
        '{"type":"release","offsets":[[0,1]],"reason":"Error: bad"}' if fails else '{"type":"accept","offsets":[[0,1]]}'
    )
    assert _on_a_fake(built, fails=fails, refuseAll=refuses_all) == [
        "handles 0",
        verdict,
        verdict,
        '{"type":"release","offsets":[[1,2]],"uncounted":true}',
        "ends: Error: INVALID_REQUEST: refused",
    ]


@pytest.mark.parametrize(
    "scenario", [{"untilMsLeft": [HOUR_MS, 300]}, {"loseFirstAcquire": True}], ids=["short lock", "repeated acquire"]
)
def test_worker_renews_before_the_shortest_lock_ends(built: Path, scenario: Mapping[str, object]) -> None:
    """The handler waits for a renewal. A third of `lock_ms` would be 20 minutes."""
    first, second, *_ = _on_a_fake(built, waitsForRenewal=True, **scenario)
    assert (first, second) == ("handles 0", '{"type":"renew","offsets":[[0,1],[1,2]]}')


def test_worker_without_records_asks_ever_more_seldom_and_stops_at_once(node: Node, admin: Admin) -> None:
    admin.create_topic("quiet")
    admin.create_share_group("quiet", "quiet")
    with node.started("work", "quiet") as worker:
        worker.until_asks("/records", 4)
        first, *_, last = worker.asked_at_ms("/records")[:4]
        assert last - first >= 0.9 * (200 + 400 + 800)
        worker.stop()  # in a pause of 1.6 s
    asked = len(worker.asked_at_ms("/records"))
    with node_of(node, "waits").started("work", "quiet", WAIT_MS="1000") as waiting:
        waiting.until_asks("/records", 2)
        first, second = waiting.asked_at_ms("/records")[:2]
        assert second - first >= 1_000, "the service holds the call"
        node.run("produce", "quiet", lines=['{"id": 1}'])
        waiting.until_says("has done order 1")
        waiting.stop()
    assert asked <= 6


def node_of(node: Node, name: str) -> Node:
    """Another one, with files of its own."""
    folder = node.folder / name
    folder.mkdir()
    return Node(node.built, node.variables, folder)


def _left(admin: Admin, group: str) -> int:
    return sum(each.lag for each in admin.describe_share_group(group).partitions)
