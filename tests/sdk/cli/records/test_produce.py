import json
import os
import signal
import subprocess
import sys

import pytest

from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run, run_json
from tests.support.child_process import bare_environment, child_process

INTERRUPTED = """
from penstock.cli import main
from penstock.testing import MemoryPenstock
service = MemoryPenstock()
service.create_topic("t")
try:
    main(["produce", "t"], obj=service.transport)
except SystemExit as end:
    print(end.code, len(service.records("t")))
"""


@pytest.fixture(autouse=True)
def orders(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=2)
    service.create_topic("copy", partitions=2)


def test_line_without_separator_ends_the_input_with_the_count_of_records_sent(service: MemoryPenstock) -> None:
    arguments = ("produce", "orders", "--key-separator", ":")
    result = run(service.transport, *arguments, stdin=b"a:1\nb:2\nbad\nc:3\n")
    assert result.exit_code == 1
    assert "2 records were sent" in result.stderr
    assert "line 3 ('bad'): it has no ':'" in result.stderr
    assert len(service.records("orders")) == 2


@pytest.mark.parametrize(
    ("options", "bad", "why"),
    [
        ((), b"x" * 2_000_000, "a record of about 2,000,036 bytes for topic 'orders'"),
        (("--format", "json"), b'{"value": "b", "partition": 9}', "partition 9"),
    ],
)
def test_line_that_cannot_be_sent_ends_the_input_as_one_that_cannot_be_read(
    service: MemoryPenstock, options: tuple[str, ...], bad: bytes, why: str
) -> None:
    good = b'{"value": "a"}' if options else b"a"
    lines = b"\n".join((good, bad, good, b""))
    result = run(service.transport, "produce", "orders", *options, stdin=lines)
    assert (result.exit_code, len(service.records("orders"))) == (1, 1)
    assert "1 record was sent" in result.stderr
    assert "line 2 (" in result.stderr
    assert why in result.stderr
    assert "send it and the rest (tail -n +2)" in result.stderr
    said = run_json(service.transport, "produce", "orders", *options, "--skip-bad", stdin=lines)
    assert (said["records"], said["skipped"], len(service.records("orders"))) == (2, 1, 3)
    assert said["bytes"] == 2 * len(good)


def test_bad_lines_are_skipped_and_counted_when_asked(service: MemoryPenstock) -> None:
    arguments = ("produce", "orders", "--key-separator", ":", "--skip-bad")
    said = run_json(service.transport, *arguments, stdin=b"a:1\nbad\nb:2\nworse\n")
    assert (said["records"], said["skipped"], said["bytes"]) == (2, 2, 6)
    assert [record.value for record in service.records("orders")] == [b"1", b"2"]


def test_one_key_for_all_and_null_values(service: MemoryPenstock) -> None:
    run_json(service.transport, "produce", "orders", "--key", "k", "--null", "-", stdin=b"v\n-\n\n")
    assert [(each.key, each.value) for each in service.records("orders")] == [(b"k", b"v"), (b"k", None), (b"k", b"")]


def test_null_keys_and_tombstones_by_separator(service: MemoryPenstock) -> None:
    arguments = ("produce", "orders", "--partition", "0", "--key-separator", ":", "--null", "NULL")
    run_json(service.transport, *arguments, stdin=b"a:NULL\nNULL:v\n:\n")
    assert [(each.key, each.value) for each in service.records("orders")] == [(b"a", None), (None, b"v"), (b"", b"")]


def test_what_consume_json_writes_is_taken_back_byte_for_byte(service: MemoryPenstock) -> None:
    with service.producer() as producer:
        producer.send(
            "orders", b"\xff\x00", key=b"\xfe", headers=[("a", b"1"), ("b", b"\xff"), ("c", None)], timestamp_ms=7
        )
        producer.send("orders", None, key="é", timestamp_ms=8)
        producer.send("orders", "\t\r\n\u2028", partition=1, timestamp_ms=9)
        producer.send("orders", b"", key=b"", partition=0, headers=[("", b""), ("a", b"\x1b")], timestamp_ms=10)
    written = run(service.transport, "consume", "orders", "--max-records", "4", "--json").stdout_bytes
    assert run_json(service.transport, "produce", "copy", "--format", "json", stdin=written)["records"] == 4
    copied = [each._replace(topic="orders") for each in service.records("copy")]
    assert copied == service.records("orders")


def test_json_partition_gives_way_to_the_key_when_asked(service: MemoryPenstock) -> None:
    service.create_topic("narrow")
    line = b'{"partition": 1, "key": "k", "value": "v"}\n'
    refused = run(service.transport, "produce", "narrow", "--format", "json", stdin=line)
    assert (refused.exit_code, "UNKNOWN_PARTITION" in refused.stderr) == (1, True)
    run_json(service.transport, "produce", "narrow", "--format", "json", "--by-key", stdin=line)
    assert [record.key for record in service.records("narrow")] == [b"k"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "Expecting"),
        (b"[]", "no JSON object"),
        (b"{}", "neither value nor value_base64"),
        (b'{"value": 1}', "give text or null"),
        (b'{"value": "a", "value_base64": "YQ=="}', "both value and value_base64"),
        (b'{"value_base64": "?"}', "not base64"),
        (b'{"value": "a", "when": 1}', "unknown field"),
        (b'{"value": "a", "partition": true}', "whole number"),
        (b'{"value": "a", "headers": {"a": "b"}}', "give a list"),
        (b'{"value": "a", "headers": [["a"]]}', "header"),
        (b'{"value": "\\ud800"}', "surrogate"),
        (b"\xff", "is not UTF-8"),
    ],
)
def test_bad_json_line_is_refused_with_its_reason(service: MemoryPenstock, line: bytes, reason: str) -> None:
    result = run(service.transport, "produce", "orders", "--format", "json", "--json", stdin=b'{"value": "v"}\n' + line)
    assert result.exit_code == 1
    said, error = result.stderr.splitlines()
    assert said == "1 record was sent"
    assert json.loads(error)["error"]["line"] == 2
    assert reason in json.loads(error)["error"]["message"]


def test_unknown_topic_is_refused_when_there_is_nothing_to_send(service: MemoryPenstock) -> None:
    result = run(service.transport, "produce", "nope", stdin=b"")
    assert (result.exit_code, "UNKNOWN_TOPIC" in result.stderr) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_delivers_the_lines_that_were_read_and_tells_their_count(number: int) -> None:
    with child_process(
        [sys.executable, "-c", INTERRUPTED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=bare_environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        assert process.stdout is not None
        process.stdin.write(b"a\nb\n" * 50_000)
        process.stdin.flush()  # more than a pipe holds: the command has begun to read
        os.kill(process.pid, number)
        code, delivered = map(int, process.stdout.read().split())
        said = process.stderr.read().decode()
    assert code == 1
    assert 0 < delivered <= 100_000
    assert said.startswith(f"interrupted: {delivered:,} records, ")


def test_lines_may_be_arguments(service: MemoryPenstock) -> None:
    service.create_topic("cups")
    assert run(service.transport, "produce", "cups", "k:a cup", "k:b", "--key-separator", ":").exit_code == 0
    assert [(each.key, each.value) for each in service.records("cups")] == [(b"k", b"a cup"), (b"k", b"b")]
    assert run(service.transport, "produce", "cups", "a", "--file", __file__).exit_code == 2
