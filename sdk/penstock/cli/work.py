"""`penstock work`: one process per record of a share group; its exit code decides what happens to the record."""

import base64
import json
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from penstock.cli.completion import complete_share_groups
from penstock.cli.options.times import DURATION
from penstock.cli.records.json_lines import header_value
from penstock.cli.service import Service, service_command
from penstock.model.share import Reject, ShareRecord
from penstock.share.share_consumer import ShareConsumer
from penstock.system import monotonic_ms
from penstock_core.text import escaped

REJECT_CODE = 65  # EX_DATAERR of sysexits.h: the data are wrong, and will be wrong the next time
_LOOK_S = 0.5  # between two looks whether the time of a process is over
_MARGIN_MS = 5_000  # for the end of a killed process and its acknowledgement


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
    releases it: it comes again after the group's backoff. The lock is renewed while the process works.

    The process gets PENSTOCK_RECORD_TOPIC, _PARTITION, _OFFSET, _TIMESTAMP_MS, _DELIVERY_COUNT, _HEADERS (JSON), and
    _KEY if the record has a key of plain text, else _KEY_BASE64. PENSTOCK_RECORD_IS_NULL=1 marks a null value.
    """
    consumer = ShareConsumer(
        *topics,
        group_id=group,
        transport=service.transport,
        lock_ms=lock_ms,
        drain_ms=drain_ms + _MARGIN_MS,
        on_lock_lost=_tell_lost,
    )
    crew = Crew(consumer, command, drain_ms=drain_ms)
    over = threading.Event()
    if idle_ms is not None:
        threading.Thread(target=crew.stop_when_idle, args=(idle_ms, over), daemon=True).start()
    try:
        consumer.run(crew.handle, concurrency=concurrency)
    finally:
        over.set()
    counts = {name: crew.counts[name] for name in ("accepted", "rejected", "released")}
    service.say(counts, ", ".join(f"{count} {name}" for name, count in counts.items()))


class Crew:
    """The processes of one command. `counts` has accepted, rejected and released records."""

    def __init__(self, consumer: ShareConsumer, command: Sequence[str], *, drain_ms: int) -> None:
        self.counts: Counter[str] = Counter()
        self._consumer = consumer
        self._command = command
        self._drain_ms = drain_ms
        self._lock = threading.Lock()
        self._working = 0
        self._moved_ms = monotonic_ms()

    def handle(self, record: ShareRecord) -> None:
        """Run the command for a record, and acknowledge it as the exit code says. Raises Reject."""
        self._note(1)
        outcome = "released"
        try:
            code = self._run(record)
            if code == REJECT_CODE:
                outcome = "rejected"
                raise Reject(f"exit code {code}")
            if code:
                _tell_failure(record, self._command[0], f"exit code {code}" if code > 0 else f"signal {-code}")
                self._consumer.release(record)
                return
            outcome = "accepted"
        except (OSError, ValueError) as error:  # the process did not start
            _tell_failure(record, self._command[0], str(error))
            self._consumer.release(record)
        finally:
            self._note(-1, outcome)

    def stop_when_idle(self, idle_ms: int, over: threading.Event) -> None:
        """Stop the consumer when no process has worked for so long."""
        while not over.is_set():
            with self._lock:
                left_ms = idle_ms if self._working else self._moved_ms + idle_ms - monotonic_ms()
            if left_ms <= 0:
                self._consumer.stop()
                return
            over.wait(left_ms / 1_000)

    def _run(self, record: ShareRecord) -> int:
        process = subprocess.Popen(  # noqa: S603 - the user's own command
            self._command,
            stdin=subprocess.PIPE,
            env={**os.environ, **facts(record)},
            start_new_session=True,  # Ctrl-C is for this command, which lets its processes finish
        )
        stopped_ms: int | None = None
        value: bytes | None = record.value or b""
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

    def _note(self, more: int, outcome: str | None = None) -> None:
        with self._lock:
            self._working += more
            self._moved_ms = monotonic_ms()
            if outcome is not None:
                self.counts[outcome] += 1


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


def _tell_failure(record: ShareRecord, command: str, why: str) -> None:
    place = f"{record.topic}[{record.partition}] offset {record.offset}"
    click.echo(escaped(f"released {place} after delivery {record.delivery_count}: {command}: {why}"), err=True)


def _tell_lost(records: list[ShareRecord]) -> None:
    for each in records:
        click.echo(
            escaped(f"lost the lock of {each.topic}[{each.partition}] offset {each.offset}: it may be worked on twice"),
            err=True,
        )
