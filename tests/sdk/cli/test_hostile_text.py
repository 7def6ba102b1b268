"""Text that others chose, on your terminal: the command line shows it, and neither the terminal nor rich obeys it."""

import json
import os
import pty
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock import TopicPartition
from penstock.cli import main
from penstock.testing import MemoryPenstock
from tests.sdk.http.faulty_transport import FaultyTransport, answer
from tests.support.child_process import child_process

HOSTILE = "\x1b]0;pwned\x07\x1b[2J\r\x9b31m\u202egnp.exe\u2066\u2028[/nope][link=http://evil]x[/link]"
OBEYED = "\x1b\x07\r\x9b\u202e\u2066\u2028"
ON_A_TERMINAL = """
import sys
from penstock.cli import main
from penstock.testing import MemoryPenstock
with MemoryPenstock() as service:
    service.create_topic("t")
    with service.producer() as producer:
        producer.send("t", HOSTILE.encode() + b"\\xff", key=b"\\x1b[2J", headers=[("\\x1bh", b"\\x9b")])
    main(["consume", "t", "--max-records", "1", *sys.argv[1:]], obj=service.transport)
"""


def run(service: MemoryPenstock, *arguments: str) -> Result:
    done = CliRunner().invoke(main, arguments, obj=service.transport)
    assert done.exit_code == 0, done.output
    assert not set(done.stdout) & set(OBEYED), repr(done.stdout)
    return done


@pytest.fixture
def billing(service: MemoryPenstock) -> MemoryPenstock:
    """A group with hostile metadata."""
    service.create_topic("orders")
    service.admin().commit_group_offsets("billing", {TopicPartition("orders", 0): 0}, metadata=HOSTILE)
    return service


def test_metadata_of_offsets_is_shown_as_text(billing: MemoryPenstock) -> None:
    shown = run(billing, "groups", "offsets", "billing").stdout
    assert r"\x1b]0;pwned\x07\x1b[2J\x0d\x9b31m\u202egnp.exe\u2066\u2028[/nope][link=http://evil]x[/link]" in shown


def test_json_has_no_character_that_a_terminal_obeys_and_means_the_same(billing: MemoryPenstock) -> None:
    [found] = json.loads(run(billing, "groups", "offsets", "billing", "--json").stdout)
    assert found["metadata"] == HOSTILE
    run(billing, "groups", "describe", "billing", "--json")


def answering(service: MemoryPenstock, path: str, status: int, body: object) -> FaultyTransport:
    """The service, whose next answer on that path is this one."""
    transport = FaultyTransport(service.transport)
    transport.faults[path] = [answer(status, json.dumps(body).encode())]
    return transport


@pytest.mark.parametrize(
    ("arguments", "path"),
    [(("groups", "describe", "billing"), "/v1/groups/billing"), (("zones", "list"), "/v1/zones")],
)
def test_answer_of_a_service_is_never_markup(service: MemoryPenstock, arguments: tuple[str, ...], path: str) -> None:
    member: dict[str, Any] = {
        "member_id": "m", "instance_id": None, "client_id": HOSTILE, "topics": [], "patterns": [],
        "epoch": 1, "joined_at_ms": 0, "session_ends_at_ms": 0,
    }  # fmt: skip
    partition = {
        "topic": "orders", "partition": 0, "assigned_to": "m", "owner": "m", "lease_epoch": 1, "offset": None,
        "metadata": HOSTILE, "committed_at_ms": 0, "log_start_offset": 0, "high_watermark": 0, "lag": None,
        "oldest_age_ms": None,
    }  # fmt: skip
    group = {"group": "billing", "epoch": 1, "member_count": 1, "config": {}, "changed_at_ms": 0}
    zone = {"zone": "a", "state": "taken_out", "version": 1, "since_ms": 0, "reason": HOSTILE}
    body = {**group, "members": [member], "partitions": [partition], "next_after": None, "zones": [zone]}
    done = CliRunner().invoke(main, arguments, obj=answering(service, path, 200, body))
    assert done.exit_code == 0, repr(done.exception)
    assert not set(done.stdout) & set(OBEYED)
    assert "[/nope]" in done.stdout
    assert r"\x1b]0;pwned" in done.stdout


def test_error_message_is_shown_as_text(service: MemoryPenstock) -> None:
    error = {"error": {"code": "INVALID_REQUEST", "message": f"it is {HOSTILE}", "maybe_applied": False}}
    done = CliRunner().invoke(main, ("topics", "list"), obj=answering(service, "/v1/topics", 400, error))
    assert done.exit_code == 1
    assert not set(done.stderr) & set(OBEYED), repr(done.stderr)
    assert r"\x1b]0;pwned" in done.stderr


def _consume_on_a_terminal(tmp_path: Path, *arguments: str) -> str:
    script = tmp_path / "script.py"
    script.write_text(f"HOSTILE = {HOSTILE!r}\n{ON_A_TERMINAL}")
    ours, theirs = pty.openpty()
    try:
        with child_process([sys.executable, str(script), *arguments], stdout=theirs, env=_environment()) as process:
            os.close(theirs)
            written = b""
            try:
                while chunk := os.read(ours, 65_536):
                    written += chunk
            except OSError:
                pass  # Linux ends a terminal so
            assert process.wait() == 0
    finally:
        os.close(ours)
    return written.decode().replace("\r\n", "\n")


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize("arguments", [(), ("--format", r"{key}:{headers}:{value}\n"), ("--json",)])
def test_consume_writes_escapes_to_a_terminal(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    written = _consume_on_a_terminal(tmp_path, *arguments)
    assert written
    assert not set(written) & set(OBEYED), repr(written)
    if "--json" not in arguments:
        assert r"\x1b]0;pwned\x07\x1b[2J\x0d\x9b31m\u202egnp.exe" in written
        assert r"\xff" in written


def test_consume_writes_every_byte_to_a_pipe(service: MemoryPenstock) -> None:
    service.create_topic("t")
    with service.producer() as producer:
        producer.send("t", HOSTILE.encode() + b"\xff")
    done = CliRunner().invoke(main, ("consume", "t", "--max-records", "1"), obj=service.transport)
    assert done.stdout_bytes == HOSTILE.encode() + b"\xff\n"


def test_json_lines_have_escapes_and_mean_the_same(service: MemoryPenstock) -> None:
    value = "\x9b31m\u202egnp.exe é €"
    service.create_topic("t")
    with service.producer() as producer:
        producer.send("t", value.encode(), headers=[("\x1bh\x7f", b"x")])
    done = run(service, "consume", "t", "--max-records", "1", "--json")
    assert "é €" in done.stdout
    assert "\x7f" not in done.stdout
    record = json.loads(done.stdout)
    assert (record["value"], record["headers"]) == (value, [["\x1bh\x7f", "x"]])
