"""`penstock consume`: records to standard output."""

import base64
import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

import click

from penstock.admin import Admin
from penstock.cli.service import Service, parse_time_ms, service_command
from penstock.consumer import Consumer
from penstock.model import ConsumerRecord, TopicPartition
from penstock.system import monotonic_ms

POLL_RECORDS = 5_000
POLL_MS = 500

_NOT_PLAIN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # as the API: base64 rather than control characters
_FIELD = re.compile(r"\{(\w+)\}")
_FIELDS: dict[str, Callable[[ConsumerRecord], bytes]] = {
    "topic": lambda record: record.topic.encode(),
    "partition": lambda record: b"%d" % record.partition,
    "offset": lambda record: b"%d" % record.offset,
    "timestamp_ms": lambda record: b"%d" % record.timestamp_ms,
    "key": lambda record: record.key or b"",
    "value": lambda record: record.value or b"",
    "headers": lambda record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
}


@click.command()
@click.argument("topic")
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    help="earliest, latest, an offset, or an ISO 8601 time. Without it: where the group is, else earliest.",
)
@click.option("--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this; may come often.")
@click.option(
    "--group",
    metavar="GROUP",
    help="Share the partitions with the other members, go on where the group is, commit. Not shared with --partition.",
)
@click.option("--max-records", type=click.IntRange(min=1), metavar="N", help="Stop after so many.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Stop when none comes for so long.")
@click.option(
    "--format",
    "template",
    default=r"{value}\n",
    show_default=True,
    help=f"What to write of a record: {', '.join(f'{{{field}}}' for field in _FIELDS)}, and escapes such as \\t.",
)
@service_command
def consume(
    service: Service,
    topic: str,
    start: str | None,
    partitions: tuple[int, ...],
    group: str | None,
    max_records: int | None,
    timeout: float | None,
    template: str,
) -> None:
    """Write the records of TOPIC to standard output, as they come, until interrupted.

    With --json: an object per line, as the HTTP API's JSON fetch gives it.
    """
    write_record = _json_line if service.as_json else _formatter(template)
    is_shared = group is not None and not partitions
    chosen = [TopicPartition(topic, each) for each in partitions]
    chosen = chosen or Admin(transport=service.transport).partitions(
        [topic]
    )  # also tells whether there is such a topic

    def seek(assigned: list[TopicPartition]) -> None:
        if start is not None:
            _seek(consumer, assigned, start)

    with Consumer(
        *((topic,) if is_shared else ()),
        transport=service.transport,
        group_id=group,
        auto_offset_reset="latest" if start == "latest" else "earliest",
        on_assigned=seek if is_shared else None,
    ) as consumer:
        if not is_shared:
            consumer.assign(chosen)
            seek(chosen)
        try:
            _copy(consumer, write_record, sys.stdout.buffer, max_records, timeout)
        except KeyboardInterrupt:
            pass  # the way to end it
        except BrokenPipeError:
            # The reader has gone. Python flushes stdout once more at exit: let that go nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _copy(
    consumer: Consumer,
    write_record: Callable[[ConsumerRecord], bytes],
    output: BinaryIO,
    max_records: int | None,
    timeout: float | None,
) -> None:
    left = max_records
    last_ms = monotonic_ms()
    while left is None or left > 0:
        wait_ms = POLL_MS if timeout is None else max(0, min(POLL_MS, last_ms + int(timeout * 1_000) - monotonic_ms()))
        records = consumer.poll(POLL_RECORDS if left is None else min(left, POLL_RECORDS), wait_ms)
        if records:
            output.write(b"".join(map(write_record, records)))
            output.flush()
            last_ms = monotonic_ms()
            left = None if left is None else left - len(records)
        elif timeout is not None and monotonic_ms() - last_ms >= timeout * 1_000:
            return


def _seek(consumer: Consumer, assignment: list[TopicPartition], start: str) -> None:
    if start == "earliest":
        offsets = consumer.beginning_offsets(assignment)
    elif start == "latest":
        offsets = consumer.end_offsets(assignment)
    elif start.isascii() and start.isdigit():
        offsets = dict.fromkeys(assignment, int(start))
    else:
        at_time = consumer.offsets_for_times(dict.fromkeys(assignment, parse_time_ms(start)))
        found = {each: at.offset for each, at in at_time.items() if at is not None}
        # Nothing that late yet: what comes will be.
        offsets = consumer.end_offsets(each for each in assignment if each not in found) | found
    for partition, offset in offsets.items():
        consumer.seek(partition, offset)


def _formatter(template: str) -> Callable[[ConsumerRecord], bytes]:
    unknown = [field for field in _FIELD.findall(template) if field not in _FIELDS]
    if unknown:
        raise click.BadParameter(f"unknown field {{{unknown[0]}}}: there are {', '.join(_FIELDS)}")
    pieces = _FIELD.split(_unescape(template))  # text, field, text, field, … text
    texts = [piece.encode() for piece in pieces[::2]]
    fields = [_FIELDS[name] for name in pieces[1::2]]

    def write(record: ConsumerRecord) -> bytes:
        written = [texts[0]]
        for field, text in zip(fields, texts[1:], strict=True):
            written += (field(record), text)
        return b"".join(written)

    return write


def _unescape(template: str) -> str:
    escapes = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\0": "\0", r"\\": "\\"}
    return re.sub(r"\\[ntr0\\]", lambda match: escapes[match[0]], template)


def _json_line(record: ConsumerRecord) -> bytes:
    document: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_text_or_base64("key", record.key),
        **_text_or_base64("value", record.value),
        "headers": [[name, _header_value(value)] for name, value in record.headers],
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _text_or_base64(name: str, content: bytes | None) -> dict[str, str | None]:
    text = _plain_text(content)
    if content is None or text is not None:
        return {name: text}
    return {f"{name}_base64": base64.b64encode(content).decode()}


def _header_value(content: bytes | None) -> str | dict[str, str] | None:
    text = _plain_text(content)
    return text if content is None or text is not None else {"base64": base64.b64encode(content).decode()}


def _plain_text(content: bytes | None) -> str | None:
    try:
        text = None if content is None else content.decode()
    except UnicodeDecodeError:
        return None
    return None if text is None or _NOT_PLAIN.search(text) else text
