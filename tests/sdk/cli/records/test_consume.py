import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run, run_json
from tests.sdk.http.faulty_transport import FaultyTransport
from tests.support.child_process import bare_environment, child_process

SIGNALLED = """
import threading
from penstock.cli import main
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
with MemoryPenstock() as service:
    service.create_topic("t")
    with service.producer() as producer:
        producer.send("t", b"only")
    code = main(["consume", "t", "--group", "g"], obj=service.transport, standalone_mode=False)
    (partition,) = service.admin().describe_group("g").partitions
    print(code, partition.offset, len(service.admin().describe_group("g").members))
"""


@pytest.fixture(autouse=True)
def orders(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    with service.producer() as producer:
        for number in range(5):
            producer.send("orders", str(number), timestamp_ms=1_000 * number)


@pytest.mark.parametrize("options", [("--partition", "0"), (), ("--group", "g")])
def test_offset_beyond_the_end_is_refused_with_the_bounds(service: MemoryPenstock, options: tuple[str, ...]) -> None:
    result = run(service.transport, "consume", "orders", "--from", "99999999", "--max-records", "1", *options)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "OFFSET_OUT_OF_RANGE" in result.stderr
    assert "99999999" in result.stderr
    assert "[0, 5)" in result.stderr


def test_offset_that_retention_has_removed_is_refused(service: MemoryPenstock) -> None:
    service.admin().truncate("orders", {0: 2})
    result = run(service.transport, "consume", "orders", "--from", "1", "--max-records", "1")
    assert (result.exit_code, "OFFSET_OUT_OF_RANGE" in result.stderr) == (1, True)


def test_offset_at_the_end_waits_for_the_next_record(service: MemoryPenstock) -> None:
    run_on = threading.Timer(0, lambda: service.producer().send("orders", b"next").result())
    run_on.start()
    result = run(service.transport, "consume", "orders", "--from", "5", "--max-records", "1")
    run_on.join()
    assert (result.exit_code, result.stdout) == (0, "next\n")


def test_last_starts_so_many_offsets_before_the_end(service: MemoryPenstock) -> None:
    for last, expected in (("2", ["3", "4"]), ("9", ["0", "1", "2", "3", "4"])):
        result = run(service.transport, "consume", "orders", "--last", last, "--max-records", str(len(expected)))
        assert result.stdout.split() == expected


def test_time_may_be_relative(service: MemoryPenstock) -> None:
    with service.producer() as producer:
        producer.send("orders", b"now")
    for start in ("10m", "-10m", "10m ago", "yesterday"):
        result = run(service.transport, "consume", "orders", "--from", start, "--max-records", "1")
        assert result.stdout == "now\n"
    assert run_json(service.transport, "offsets", "orders", "--at", "1h")[0]["offset_at_time"] == 5
    assert run(service.transport, "groups", "reset", "g", "orders", "--at", "1h", "--create").exit_code == 0
    assert run_json(service.transport, "groups", "offsets", "g")[0]["offset"] == 5


def test_group_reads_the_topics_of_a_pattern(service: MemoryPenstock) -> None:
    result = run(service.transport, "consume", "ord*", "--group", "g", "--max-records", "5")
    assert (result.exit_code, result.stdout.split()) == (0, ["0", "1", "2", "3", "4"])


def test_pattern_without_a_topic_is_told_while_the_group_waits(service: MemoryPenstock) -> None:
    result = run(service.transport, "consume", "none*", "--group", "g", "--timeout", "0.05")
    assert (result.exit_code, result.stderr) == (0, "no topic matches none* yet: waiting for one\n")


@pytest.mark.parametrize(("wait", "asked"), [("wake", 1), ("poll", 0)])
def test_consume_waits_as_it_is_told(service: MemoryPenstock, wait: str, asked: int) -> None:
    calls = FaultyTransport(service.transport)
    result = run(calls, "consume", "orders", "--from", "latest", "--timeout", "0.3", "--wait", wait)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert calls.count("/v1/wake-ups") == asked


def test_unknown_partition_is_refused_with_the_numbers_that_there_are(service: MemoryPenstock) -> None:
    result = run(service.transport, "consume", "orders", "--partition", "3", "--max-records", "1")
    assert (result.exit_code, "it has 0 to 0" in result.stderr) == (1, True)


def test_offsets_of_an_unknown_group_are_refused(service: MemoryPenstock) -> None:
    result = run(service.transport, "groups", "offsets", "nope")
    assert (result.exit_code, "UNKNOWN_GROUP" in result.stderr) == (1, True)


@pytest.fixture
def consuming() -> Iterator["subprocess.Popen[bytes]"]:
    with child_process(
        [sys.executable, "-c", SIGNALLED],
        stdout=subprocess.PIPE,
        env=bare_environment(),
    ) as process:
        yield process


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_a_member_that_commits_and_leaves(consuming: "subprocess.Popen[bytes]", number: int) -> None:
    assert consuming.stdout is not None
    assert consuming.stdout.readline() == b"only\n"
    os.kill(consuming.pid, number)
    assert consuming.stdout.readline() == b"None 1 0\n"
    assert consuming.wait() == 0


def test_share_groups_name_is_refused_for_a_group_that_is_not_there(service: MemoryPenstock) -> None:
    service.create_share_group("packers", "orders")
    refused = run(service.transport, "consume", "orders", "--group", "packers", "-n", "1")
    assert refused.exit_code == 1
    assert "'packers' is a share group: read it by `penstock work`" in refused.stderr
    service.admin().commit_group_offsets("packers", {TopicPartition("orders", 0): 4})
    assert run(service.transport, "consume", "orders", "--group", "packers", "-n", "1").exit_code == 0
