"""`penstock work`: one process per record of a share group; its exit code decides what happens to the record."""

import base64
import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click

from penstock.admin.admin import Admin
from penstock.cli.completion import complete_share_groups
from penstock.cli.options.times import DURATION
from penstock.cli.records.json_lines import header_value
from penstock.cli.service import CommandError, Service, service_command
from penstock.errors import InvalidError
from penstock.model.share import Reject, Release, ShareRecord
from penstock.share.share_consumer import ShareConsumer
from penstock.system import monotonic_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import SDK_SHARE_FAILURES_MAX
from penstock_core.text import escaped

REJECT_CODE = 65  # EX_DATAERR of sysexits.h: the data are wrong, and will be wrong the next time
_LOOK_S = 0.5  # between two looks whether the time of a process is over
_MARGIN_MS = 5_000  # for the end of a killed process and its acknowledgement
_OF_THE_RECORD = (errno.E2BIG,)  # an environment that is too large: its headers are
_PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_PASSING_DELAY_MS = 1_000
_ERRORS_BYTES = 4_096  # of standard error, read at once and kept
_ERRORS_S = 1.0  # after the end of a process, for the rest of it
_LAST_LINE_MAX = 200  # characters
_NOT_STARTED_CODES = (126, 127)  # of a shell: it may not execute the program, or there is none
_WARDEN = """
import os, signal, sys
working = set()
for line in sys.stdin.buffer:
    (working.add if line[:1] == b"+" else working.discard)(int(line[1:]))
for pid in working:
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass
"""


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("group", shell_complete=complete_share_groups)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--topic", "topics", multiple=True, help="Only this topic of the group; you may repeat this.")
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=1, show_default=True, help="The processes at the same time."
)
@click.option("--lock", "lock_ms", type=DURATION, metavar="DURATION", help="Lock a record for so long at a time.")
@click.option(
    "--drain",
    "drain_ms",
    type=DURATION,
    default="20s",
    show_default=True,
    help="After INT or TERM, let processes work for so long.",
)
@click.option(
    "--idle", "idle_ms", type=DURATION, metavar="DURATION", help="End when no record came for so long. Default: never."
)
@service_command
def work(
    service: Service,
    group: str,
    command: tuple[str, ...],
    topics: tuple[str, ...],
    concurrency: int,
    lock_ms: int | None,
    drain_ms: int,
    idle_ms: int | None,
) -> None:
    """Run COMMAND once for each record of the share group GROUP, with the value on its standard input.

    Exit code 0 accepts the record. 65 rejects it: it goes to the dead-letter topic. Any other code and any signal
    releases it: it comes again after the group's backoff. The lock is renewed while the process works. A dead letter
    tells the exit code and the last line of standard error.

    After 10 records in a row that failed, the command pauses: for 1 s first, then longer, up to a minute. If COMMAND
    cannot be started, or if its first 10 runs all end with a shell's code for that, 126 or 127, it gives the records
    back and ends with exit code 1. Their tries do not count.

    The process gets PENSTOCK_RECORD_TOPIC, _PARTITION, _OFFSET, _TIMESTAMP_MS, _DELIVERY_COUNT, _HEADERS (JSON), and
    _KEY if the record has a key of plain text, else _KEY_BASE64. PENSTOCK_RECORD_IS_NULL=1 marks a null value.

    For example: penstock work workers --concurrency 4 -- python handler.py
    """
    if shutil.which(command[0]) is None:
        raise CommandError(
            _cannot_start(command[0], "there is no such program, or you may not execute it"), as_json=service.as_json
        )
    consumer = ShareConsumer(
        *topics,
        group_id=group,
        transport=service.transport,
        lock_ms=lock_ms,
        drain_ms=drain_ms + _MARGIN_MS,
        on_lock_lost=_tell_lost,
    )
    _tell_of_no_dead_letters(Admin(transport=service.transport), group)
    crew = Crew(consumer, command, drain_ms=drain_ms)
    with _warden() as crew.told:
        consumer.run(crew.handle, concurrency=concurrency, idle_ms=idle_ms)
    crew.check()
    counts = {name: crew.counts[name] for name in ("accepted", "rejected", "released")}
    service.say(counts, ", ".join(f"{count} {name}" for name, count in counts.items()))
    if crew.failure is not None:
        raise CommandError(crew.failure, as_json=service.as_json)


def _tell_of_no_dead_letters(admin: Admin, group: str) -> None:
    """Warn of a share group without a dead-letter topic, if the caller may know its settings."""
    with suppress(PenstockError):  # the first acquire has a better one
        if admin.describe_share_group(group).group.config.get("dead_letter_topic") is None:
            click.echo(
                f"share group {group} has no dead-letter topic: a record that exit code {REJECT_CODE} rejects is "
                "finished, and kept nowhere else",
                err=True,
            )


@contextmanager
def _warden() -> Iterator[int]:
    """A process that kills the command's processes once this one is gone, also by SIGKILL.

    Else they go on while their records come again. Gives the file descriptor that takes lines of `+` and `-` with
    their numbers. A process is told before it gets its value, so those that wait for the value never outlive this one.
    """
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-ISc", _WARDEN],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        yield process.stdin.fileno()


class Crew:
    """The processes of one command. `counts` has accepted, rejected and released records.

    `failure` tells that the command cannot be started, or that the last records have all failed. `told` is the file
    descriptor of the warden, if there is one.
    """

    def __init__(self, consumer: ShareConsumer, command: Sequence[str], *, drain_ms: int) -> None:
        self.counts: Counter[str] = Counter()
        self.failure: InvalidError | None = None
        self.told: int | None = None
        self._consumer = consumer
        self._command = command
        self._drain_ms = drain_ms
        self._lock = threading.Lock()
        self._failing = 0  # runs in a row
        self._has_started = False  # a run whose exit code says so: from then on, codes of a shell are of the record

    def handle(self, record: ShareRecord) -> None:
        """Run the command for a record. Raises Reject or Release as the exit code says."""
        outcome = "released"
        try:
            code, last_line = self._run(record)
            why = f"exit code {code}" if code >= 0 else f"signal {-code}"
            reason = f"{why}: {last_line}" if last_line else why
            if code in _NOT_STARTED_CODES and not self._has_started:
                self._give_back(record, reason)
                return
            self._has_started = True
            if code == REJECT_CODE:
                outcome = "rejected"
                raise Reject(reason)
            if code:
                _tell_failure(record, self._command[0], why)
                raise Release(reason)
            outcome = "accepted"
        except (OSError, ValueError) as error:  # the process did not start
            _tell_failure(record, self._command[0], str(error))
            if isinstance(error, ValueError) or error.errno in _OF_THE_RECORD:
                raise Release(str(error)) from error
            self._consumer.release(record, _PASSING_DELAY_MS, is_counted=False)
            if error.errno not in _PASSING:
                self._end(str(error))
        finally:
            self._note(outcome)

    def _give_back(self, record: ShareRecord, reason: str) -> None:
        """Release a record uncounted that the command has not seen, it seems. After as many as pause, end."""
        _tell_failure(record, self._command[0], reason)
        self._consumer.release(record, _PASSING_DELAY_MS, is_counted=False)
        if self._failing + 1 >= SDK_SHARE_FAILURES_MAX:
            self._end(reason)

    def _end(self, why: str) -> None:
        self.failure = _cannot_start(self._command[0], why)
        self._consumer.stop()

    def _run(self, record: ShareRecord) -> tuple[int, str]:
        """The exit code, negative for a signal, and the last line that the process wrote to standard error."""
        errors = _Errors()
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command
                self._command,
                stdin=subprocess.PIPE,
                stderr=errors.inlet,
                env={**os.environ, **facts(record)},
                start_new_session=True,  # Ctrl-C is for this command, which lets its processes finish
            )
        finally:
            errors.start()
        self._tell(b"+%d\n" % process.pid)
        code = self._wait(process, record.value or b"")
        self._tell(b"-%d\n" % process.pid)
        return code, errors.last_line()

    def _tell(self, line: bytes) -> None:
        if self.told is not None:
            with suppress(OSError):  # the warden was killed
                os.write(self.told, line)

    def _wait(self, process: subprocess.Popen[bytes], value: bytes | None) -> int:
        stopped_ms: int | None = None
        while True:
            try:
                process.communicate(value, timeout=_LOOK_S)
                return process.returncode
            except subprocess.TimeoutExpired:
                value = None  # the rest of it goes on by itself
            if self._consumer.is_stopped:
                stopped_ms = monotonic_ms() if stopped_ms is None else stopped_ms
                if monotonic_ms() >= stopped_ms + self._drain_ms:
                    process.kill()

    def _note(self, outcome: str) -> None:
        with self._lock:
            self.counts[outcome] += 1
            self._failing = self._failing + 1 if outcome == "released" else 0

    def check(self) -> None:
        """Note a failure if the last records have all failed, so that a script hears of it."""
        if self.failure is None and self._failing >= SDK_SHARE_FAILURES_MAX:
            self.failure = InvalidError(
                ErrorCode.INVALID_REQUEST, f"the last {self._failing} runs of {self._command[0]} have failed: mend it"
            )


class _Errors:
    """Standard error of one process: passed on as it comes, with its last line kept."""

    def __init__(self) -> None:
        self._outlet, self.inlet = os.pipe()
        self._tail = b""
        self._thread = threading.Thread(target=self._pass_on, daemon=True)

    def start(self) -> None:
        """The process has the inlet now, or did not start."""
        os.close(self.inlet)
        self._thread.start()

    def last_line(self) -> str:
        """The last line that is not empty. What a child of the process holds open is not waited for."""
        self._thread.join(_ERRORS_S)
        lines = self._tail.decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[:_LAST_LINE_MAX]

    def _pass_on(self) -> None:
        with open(self._outlet, "rb", buffering=0) as outlet:
            while data := outlet.read(_ERRORS_BYTES):
                self._tail = (self._tail + data)[-_ERRORS_BYTES:]
                click.echo(data, nl=False, err=True)


def facts(record: ShareRecord) -> Mapping[str, str]:
    """The environment variables of a record's process."""
    known: dict[str, Any] = {
        "TOPIC": record.topic,
        "PARTITION": record.partition,
        "OFFSET": record.offset,
        "TIMESTAMP_MS": record.timestamp_ms,
        "DELIVERY_COUNT": record.delivery_count,
        "HEADERS": json.dumps([[name, header_value(value)] for name, value in record.headers]),
    }
    if record.key is not None:
        known |= _key(record.key)
    if record.value is None:
        known["IS_NULL"] = 1
    return {f"PENSTOCK_RECORD_{name}": str(value) for name, value in known.items()}


def _key(key: bytes) -> dict[str, str]:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = "\0"
    return {"KEY": text} if text.isprintable() else {"KEY_BASE64": base64.b64encode(key).decode()}


def _cannot_start(command: str, why: str) -> InvalidError:
    return InvalidError(ErrorCode.INVALID_REQUEST, f"{command} cannot be started: {why}; no record was lost")


def _tell_failure(record: ShareRecord, command: str, why: str) -> None:
    place = f"{record.topic}[{record.partition}] offset {record.offset}"
    click.echo(escaped(f"released {place} after delivery {record.delivery_count}: {command}: {why}"), err=True)


def _tell_lost(records: list[ShareRecord]) -> None:
    for each in records:
        click.echo(
            escaped(f"lost the lock of {each.topic}[{each.partition}] offset {each.offset}: it may be worked on twice"),
            err=True,
        )
