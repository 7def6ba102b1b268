"""`penstock produce`: a record per line."""

import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import IO, Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

from penstock.api.calls import topic_metadata
from penstock.cli.completion import complete_topics
from penstock.cli.options.times import DUE_TIME, Duration
from penstock.cli.records.json_lines import parse_json_line
from penstock.cli.records.line_record import LineRecord, text_line_parser
from penstock.cli.service import CommandError, Service, parse_pairs, service_command
from penstock.encryption.keys import keys_of
from penstock.encryption.values import Encryption
from penstock.errors import InvalidError, RecordTooLargeError, UnknownPartitionError
from penstock.http.client import Client
from penstock.model import RecordMetadata
from penstock.model.times import DUE_FORMS
from penstock.producer.producer import Producer
from penstock.producer.settings import ACKS, AcksName, CompressionName
from penstock.system import wall_clock_ms
from penstock.workers.signals import stopped_by_signals
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import EXPIRES_IN_MS_MAX, TIMER_DELAY_MS_MAX
from penstock_core.records.codec import time_of
from penstock_core.records.record_batch import Compression
from penstock_core.text import bytes_text, counted
from penstock_core.zones.zone_state import ACKS_ALIASES

PROGRESS_LINES = 1_000  # between two looks at the progress bar


class _Source:
    """The records of the input. `stop` ends it: at once while it waits for a line, else after the record in hand."""

    def __init__(self, lines: Iterator[bytes], parse: Callable[[bytes], LineRecord], *, is_skipping: bool) -> None:
        self.read_bytes = 0  # of lines that were not skipped
        self._line = b""  # the newest one
        self._number = 0  # counted from 1
        self.skipped = 0
        self.bad_line: InvalidError | None = None  # the line that ended the input
        self.is_stopped = False
        self._lines = lines
        self._parse = parse
        self._is_skipping = is_skipping
        self._is_reading = False

    def stop(self) -> None:
        """End the input. A signal handler calls it."""
        self.is_stopped = True
        if self._is_reading:
            raise KeyboardInterrupt

    def __iter__(self) -> Iterator[LineRecord]:
        for number in count(1):
            line = None if self.bad_line is not None else self._next_line()
            if line is None:
                return
            self._number, self._line = number, line
            self.read_bytes += len(line)
            try:
                record = self._parse(line)
            except ValueError as error:
                self.refuse(error)
                continue
            yield record

    def refuse(self, error: ValueError | PenstockError) -> None:
        """The newest line is no record that the topic takes: it ends the input, or is skipped."""
        if self._is_skipping:
            self.skipped += 1
            self.read_bytes -= len(self._line)
        else:
            self.bad_line = _bad_line(self._number, self._line, error)

    def _next_line(self) -> bytes | None:
        try:
            self._is_reading = True
            return None if self.is_stopped else next(self._lines, None)
        except KeyboardInterrupt:
            self.is_stopped = True
            return None
        finally:
            self._is_reading = False


class _Outcome:
    """Counts deliveries. The producer's threads call it, one batch at a time per thread."""

    def __init__(self) -> None:
        self.failed = 0
        self.error: PenstockError | None = None

    def __call__(self, error: PenstockError | None, _: RecordMetadata) -> None:
        if error is not None:
            self.failed += 1
            self.error = self.error or error


class _AcksChoice(click.Choice[str]):
    """The names of acks. It takes their aliases too, which the help leaves out."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        alias = ACKS_ALIASES.get(value)
        return super().convert(value if alias is None else alias.value, param, ctx)


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("texts", metavar="[LINE]...", nargs=-1)
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read this file; by default standard input.",
)
@click.option(
    "--format",
    "line_format",
    type=click.Choice(["lines", "json"]),
    default="lines",
    show_default=True,
    help="json: each line is an object as `penstock consume --json` writes it, and goes to its `partition` if it has "
    "one.",
)
@click.option("--key", metavar="TEXT", help="The key of every record. By default records have no key.")
@click.option("--key-separator", metavar="TEXT", help="Each line is KEY, this text, VALUE.")
@click.option("--null", metavar="TEXT", help="A key or a value that is this text becomes null; such a value deletes.")
@click.option("--skip-bad", is_flag=True, help="Pass over lines that cannot be read or sent, and count them.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of every record; you may repeat this."
)
@click.option("--partition", type=click.IntRange(min=0), help="Send all records to this partition.")
@click.option(
    "--delay",
    type=Duration(has_forever=False, ms_max=TIMER_DELAY_MS_MAX),
    help="Let the records wait for so long first, such as 30s, 10m or 14d.",
)
@click.option("--deliver-at", type=DUE_TIME, metavar="TIME", help=f"Let the records wait until then: {DUE_FORMS}.")
@click.option(
    "--expires-in",
    type=Duration(has_forever=False, ms_max=EXPIRES_IN_MS_MAX),
    help="Let the records expire after so long, such as 30s: share groups and subscriptions finish them unseen then.",
)
@click.option("--by-key", is_flag=True, help="With --format json: pass over `partition`, and let the key decide.")
@click.option(
    "--acks",
    type=_AcksChoice(ACKS),
    default="quorum",
    show_default=True,
    help="The zones that must store a record before it counts as delivered.",
)
@click.option(
    "--compression",
    type=click.Choice([member.name.lower() for member in Compression]),
    default="zstd",
    show_default=True,
    help="Compress the batches so.",
)
@click.option(
    "--encrypt-key",
    metavar="KEY",
    help="Encrypt the values by this key: the ARN of a KMS key, or file:PATH with keys of your own.",
)
@service_command
def produce(
    service: Service,
    topic: str,
    texts: tuple[str, ...],
    file: Path | None,
    line_format: str,
    key: str | None,
    key_separator: str | None,
    null: str | None,
    skip_bad: bool,
    headers: tuple[str, ...],
    partition: int | None,
    by_key: bool,
    delay: int | None,
    deliver_at: int | None,
    expires_in: int | None,
    acks: AcksName,
    compression: CompressionName,
    encrypt_key: str | None,
) -> None:
    """Send each line of a file, or of standard input, to TOPIC as a record.

    Give a LINE or more to send these in place of an input: penstock produce orders "a cup" "a plate".

    Line ends (LF, CR LF) are not part of the record. The exit code is 1 if any record was not delivered, and if a line
    cannot be read or sent: the records before it are delivered, and the error tells from which line to go on.

    For example: penstock produce orders --key user-1 '{"total": 12}'
    """
    parsed = [(name, value.encode()) for name, value in parse_pairs(headers, "NAME=VALUE").items()]
    parse = _parser(line_format, key, key_separator, null)
    if by_key and line_format != "json":
        raise click.UsageError("--by-key is for --format json")
    if delay is not None and deliver_at is not None:
        raise click.UsageError("give --delay or --deliver-at, not both")
    if texts and file is not None:
        raise click.UsageError("give lines or --file, not both")
    Client(service.transport, job="write").call(topic_metadata(topic))  # says so if there is none, or no service
    encryption = None if encrypt_key is None else Encryption(keys_of((encrypt_key,)))
    outcome = _Outcome()
    started = time.monotonic()
    records = 0
    with (
        nullcontext(io.BytesIO()) if texts else click.open_file(str(file or "-"), "rb") as opened,
        Producer(
            transport=service.transport,
            acks=acks,
            compression_type=compression,
            on_delivery=outcome,
            encryption=encryption,
        ) as producer,
    ):
        lines = map(os.fsencode, texts) if texts else _lines(opened, file, is_shown=not service.as_json)
        source = _Source(lines, parse, is_skipping=skip_bad)
        with stopped_by_signals(source.stop):
            for record in source:
                try:
                    producer.send(
                        topic,
                        record.value,
                        key=record.key,
                        headers=[*record.headers, *parsed],
                        partition=partition if partition is not None or by_key else record.partition,
                        timestamp_ms=time_of(record.timestamp_ms, wall_clock_ms()),
                        delay_ms=delay,
                        deliver_at_ms=deliver_at,
                        expires_in_ms=expires_in,
                    )
                except (InvalidError, RecordTooLargeError, UnknownPartitionError) as error:
                    source.refuse(error)
                else:
                    records += 1
    _tell(service, topic, source, outcome, records, time.monotonic() - started)


def _parser(
    line_format: str, key: str | None, key_separator: str | None, null: str | None
) -> Callable[[bytes], LineRecord]:
    if line_format == "json":
        if (key, key_separator, null) != (None, None, None):
            raise click.UsageError("--key, --key-separator and --null are for --format lines")
        return parse_json_line
    if key is not None and key_separator is not None:
        raise click.UsageError("give --key or --key-separator, not both")
    separator = None if key_separator is None else key_separator.encode().decode("unicode_escape").encode()
    if separator == b"":
        raise click.UsageError("--key-separator '': give 1 character or more")
    return text_line_parser(
        key=None if key is None else key.encode(), separator=separator, null=None if null is None else null.encode()
    )


def _tell(service: Service, topic: str, source: _Source, outcome: _Outcome, records: int, seconds: float) -> None:
    """Say what was sent, and exit with 1 unless all of the input was."""
    if outcome.error is not None:
        click.echo(f"{outcome.failed:,} of {records:,} records were not delivered", err=True)
        raise CommandError(outcome.error, as_json=service.as_json)
    if source.bad_line is not None:
        click.echo(f"{counted(records, 'record')} {'was' if records == 1 else 'were'} sent", err=True)
        raise CommandError(source.bad_line, as_json=service.as_json)
    size_bytes = source.read_bytes
    skipped = f", {counted(source.skipped, 'bad line')} skipped" if source.skipped else ""
    text = f"{counted(records, 'record')}, {bytes_text(size_bytes)} to {topic} in {seconds:.1f} s{skipped}"
    if source.is_stopped:
        click.echo(f"interrupted: {text}", err=True)
        sys.exit(1)
    document = {"topic": topic, "records": records, "bytes": size_bytes, "seconds": round(seconds, 3)}
    service.say(document | ({"skipped": source.skipped} if source.skipped else {}), text)


def _bad_line(number: int, line: bytes, error: ValueError | PenstockError) -> InvalidError:
    shown = line[:60].decode(errors="replace")
    return InvalidError(
        error.code if isinstance(error, PenstockError) else ErrorCode.INVALID_REQUEST,
        f"line {number} ({shown!r}): {_why(error):.300}; mend it, and send it and the rest (tail -n +{number}), "
        "or use --skip-bad",
        line=number,
    )


def _why(error: ValueError | PenstockError) -> str:
    return error.message if isinstance(error, PenstockError) else str(error)


def _lines(source: IO[bytes], file: Path | None, *, is_shown: bool) -> Iterator[bytes]:
    """The lines without their ends. Shows a progress bar on stderr if it is a terminal and the length is known."""
    console = Console(stderr=True)
    if file is None or not (is_shown and console.is_terminal):
        for line in source:
            yield line.removesuffix(b"\n").removesuffix(b"\r")
        return
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(file.name, total=file.stat().st_size)
        read_bytes = 0
        for number, line in enumerate(source):
            yield line.removesuffix(b"\n").removesuffix(b"\r")
            read_bytes += len(line)
            if number % PROGRESS_LINES == 0:
                progress.update(task, completed=read_bytes)
        progress.update(task, completed=read_bytes)
