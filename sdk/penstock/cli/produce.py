"""`penstock produce`: a record per line."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

from penstock.cli.service import CommandError, Service, parse_pairs, service_command
from penstock.configured_producer import ACKS
from penstock.model import RecordMetadata
from penstock.producer import Producer
from penstock_core.errors import PenstockError
from penstock_core.record_batch import Compression

PROGRESS_LINES = 1_000  # between two looks at the progress bar


class _Outcome:
    """Counts deliveries; called by the producer's threads, one batch at a time per thread."""

    def __init__(self) -> None:
        self.failed = 0
        self.error: PenstockError | None = None

    def __call__(self, error: PenstockError | None, _: RecordMetadata) -> None:
        if error is not None:
            self.failed += 1
            self.error = self.error or error


@click.command()
@click.argument("topic")
@click.option("--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Read this; else stdin.")
@click.option("--key-separator", metavar="TEXT", help="A line is KEY, this, VALUE; without it there are no keys.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="For every record; may come often.")
@click.option("--partition", type=click.IntRange(min=0), help="Send all there.")
@click.option("--acks", type=click.Choice(ACKS), default="quorum", show_default=True, help="Zones to wait for.")
@click.option(
    "--compression",
    type=click.Choice([member.name.lower() for member in Compression]),
    default="zstd",
    show_default=True,
    help="Of the batches.",
)
@service_command
def produce(
    service: Service,
    topic: str,
    file: Path | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    acks: str,
    compression: str,
) -> None:
    """Send each line of a file, or of standard input, to TOPIC as a record.

    Line ends (LF, CR LF) are not part of the record. Exits with 1 if any record was not delivered.
    """
    parsed = [(name, value.encode()) for name, value in parse_pairs(headers, "NAME=VALUE").items()]
    separator = None if key_separator is None else key_separator.encode().decode("unicode_escape").encode()
    outcome = _Outcome()
    started = time.monotonic()
    records = sent_bytes = 0
    with (
        click.open_file(str(file or "-"), "rb") as source,
        Producer(transport=service.transport, acks=acks, compression_type=compression, on_delivery=outcome) as producer,
    ):
        for line in _lines(source, file, is_shown=not service.as_json):
            key, value = _split(line, separator)
            producer.send(topic, value, key=key, headers=parsed, partition=partition)
            records += 1
            sent_bytes += len(line)
    seconds = time.monotonic() - started
    if outcome.error is not None:
        click.echo(f"{outcome.failed:,} of {records:,} records were not delivered", err=True)
        raise CommandError(outcome.error, as_json=service.as_json)
    service.say(
        {"topic": topic, "records": records, "bytes": sent_bytes, "seconds": round(seconds, 3)},
        f"{records:,} records, {sent_bytes / 1e6:,.1f} MB to {topic} in {seconds:.1f} s",
    )


def _lines(source: IO[bytes], file: Path | None, *, is_shown: bool) -> Iterator[bytes]:
    """The lines without their ends; with a progress bar on stderr if it is a terminal and the length is known."""
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


def _split(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    if not found:
        raise click.UsageError(f"a line without the key separator: {line[:100].decode(errors='replace')!r}")
    return key, value
