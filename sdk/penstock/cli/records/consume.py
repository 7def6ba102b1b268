"""`penstock consume`: records to standard output."""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import BinaryIO, Literal

import click
from click.core import ParameterSource

from penstock.admin.admin import Admin
from penstock.api.calls import all_partitions, list_topics
from penstock.cli.completion import complete_groups, complete_topics
from penstock.cli.options.settings import filter_text
from penstock.cli.options.times import DURATION, START, Start
from penstock.cli.records.json_lines import json_line
from penstock.cli.records.value_formats import AUTH_VARIABLE, FORMATS, deserializer_of
from penstock.cli.service import Service, service_command
from penstock.consumer.consumer import Consumer
from penstock.consumer.settings import WaitMode
from penstock.encryption.keys import keys_of
from penstock.encryption.values import Encryption
from penstock.errors import AccessDeniedError, InvalidError, UnknownPartitionError
from penstock.http.client import Client
from penstock.http.transport import Transport
from penstock.model import ConsumerRecord, TopicPartition
from penstock.model.times import TIME_FORMS
from penstock.system import monotonic_ms
from penstock.workers.signals import stopped_by_signals
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.topic_patterns import check_pattern, matches
from penstock_core.text import counted, escaped

POLL_RECORDS = 5_000
POLL_MS = 500

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
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--from",
    "start",
    type=START,
    metavar="WHERE",
    help=f"earliest, latest, an offset, {TIME_FORMS}. By default the group's offsets, else earliest.",
)
@click.option(
    "--last", type=click.IntRange(min=1), metavar="N", help="Start N offsets before the end of each partition."
)
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this partition; you may repeat this.",
)
@click.option(
    "--group",
    metavar="GROUP",
    shell_complete=complete_groups,
    help="Share the partitions with the other members, start at the group's offsets, and commit. TOPIC may be a "
    "pattern then: * stands for any characters. With --partition there is no sharing.",
)
@click.option("-n", "--max-records", type=click.IntRange(min=1), metavar="N", help="Stop after so many records.")
@click.option(
    "--timeout",
    "timeout_ms",
    type=DURATION,
    metavar="DURATION",
    help="Stop when no record comes for so long, such as 500ms or 10s.",
)
@click.option(
    "--format",
    "template",
    default=r"{value}\n",
    show_default=True,
    help=f"Write each record so. Fields: {', '.join(f'{{{field}}}' for field in _FIELDS)}; and escapes such as \\t.",
)
@click.option(
    "--on-undecodable",
    type=click.Choice(("raise", "skip")),
    default="raise",
    show_default=True,
    help="What to do with a batch that nobody can decode: end with its error, or go on behind it and count it.",
)
@click.option(
    "--wait",
    type=click.Choice(("wake", "poll")),
    default="wake",
    show_default=True,
    help="How to wait for records: until the service wakes it, which costs next to nothing, or by long polls.",
)
@click.option(
    "--filter",
    "policy",
    metavar="JSON",
    help="Only the records whose headers match this SNS filter policy, or the one in a file: @policy.json.",
)
@click.option("--skip-expired", is_flag=True, help="Leave out records whose time is over, and count them.")
@click.option(
    "--decrypt-key",
    "decrypt_keys",
    metavar="KEY",
    multiple=True,
    help="Decrypt values that this key has encrypted: the ARN of a KMS key, which you may repeat, or file:PATH with "
    "keys of your own.",
)
@click.option(
    "--value-format",
    type=click.Choice(FORMATS),
    help="Read values of this format, and write them as JSON. A value that is of no such format is undecodable.",
)
@click.option(
    "--registry",
    metavar="URL",
    help=f"The schema registry of the producer: its URL, with {AUTH_VARIABLE}=user:password if it wants one, or "
    "glue:NAME for AWS Glue's.",
)
@click.option("--schema", metavar="FILE", help="The schema, if the producer used no registry; else the one to read by.")
@service_command
def consume(
    service: Service,
    topic: str,
    start: Start | None,
    last: int | None,
    partitions: tuple[int, ...],
    group: str | None,
    max_records: int | None,
    timeout_ms: int | None,
    template: str,
    on_undecodable: Literal["raise", "skip"],
    wait: WaitMode,
    policy: str | None,
    skip_expired: bool,
    decrypt_keys: tuple[str, ...],
    value_format: str | None,
    registry: str | None,
    schema: str | None,
) -> None:
    """Write the records of TOPIC to standard output, as they come, until you interrupt it (INT or TERM).

    A terminal gets control characters as escapes, but tab and newline. A file or a pipe gets every byte.

    With --json: an object per line, as the HTTP API's JSON fetch gives it, and as `produce --format json` takes it.

    For example: penstock consume orders --from earliest --max-records 10
    """
    if service.as_json and click.get_current_context().get_parameter_source("template") is not ParameterSource.DEFAULT:
        raise click.UsageError("give --json or --format, not both")
    deserializer = deserializer_of(value_format, registry, schema)
    write_record = json_line if service.as_json else _formatter(template, for_terminal=sys.stdout.isatty())
    if last is not None:
        if start is not None:
            raise click.UsageError("give --from or --last, not both")
        start = Start(last=last)
    is_shared = group is not None and not partitions
    if group is not None:
        _refuse_share_group(Admin(transport=service.transport), group)
    chosen = _chosen(service.transport, topic, partitions, is_shared=is_shared)

    def seek(assigned: list[TopicPartition]) -> None:
        if start is not None:
            for partition, offset in start.offsets(consumer, assigned).items():
                consumer.seek(partition, offset)

    consumer = Consumer(
        *((topic,) if is_shared else ()),
        transport=service.transport,
        group_id=group,
        auto_offset_reset="earliest" if start is None else start.offset_reset,
        on_assigned=seek if is_shared else None,
        on_undecodable=on_undecodable,
        wait=wait,
        filter=None if policy is None else filter_text(policy),
        encryption=Encryption(keys_of(decrypt_keys)) if decrypt_keys else None,
        value_deserializer=deserializer,
        skip_expired=skip_expired,
    )
    try:
        with consumer, stopped_by_signals(consumer.stop):
            if not is_shared:
                consumer.assign(chosen)
                seek(chosen)
            _copy(consumer, write_record, sys.stdout.buffer, max_records, timeout_ms)
            _tell_skipped("undecodable batch", consumer.skipped_batches())
            _tell_skipped("expired record", consumer.skipped_expired())
    except BrokenPipeError:
        # The reader has gone, so the consumer has not committed the last records. Python flushes stdout once more at
        # exit: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell_skipped(what: str, skipped: Mapping[TopicPartition, int]) -> None:
    for each, count in skipped.items():
        click.echo(f"skipped {counted(count, what)} of {each.topic}[{each.partition}]", err=True)


def _refuse_share_group(admin: Admin, group: str) -> None:
    """Raises InvalidError if only a share group has this name: a new group would read all its records once more."""
    try:
        admin.describe_share_group(group)
    except PenstockError:  # there is none, or the caller may not know
        return
    try:
        admin.describe_group(group)
    except PenstockError as error:
        if error.code is ErrorCode.UNKNOWN_GROUP:
            text = f"{group!r:.100} is a share group: read it by `penstock work`, or give --group another name"
            raise InvalidError(ErrorCode.INVALID_REQUEST, text) from None


def _chosen(transport: Transport, topic: str, partitions: Sequence[int], *, is_shared: bool) -> list[TopicPartition]:
    """The partitions to read without sharing. Raises UnknownTopicError and UnknownPartitionError."""
    client = Client(transport, job="read")
    if "*" in topic:
        if not is_shared:
            raise click.UsageError(f"{topic!r:.100} is a pattern: give --group, and no --partition")
        check_pattern(topic)
        with suppress(AccessDeniedError):  # a policy may let it read, and not list
            if not any(matches(topic, each.name) for each in client.call(list_topics())):
                click.echo(f"no topic matches {topic} yet: waiting for one", err=True)
        return []
    found = client.call(all_partitions([topic]))
    for number in partitions:
        if number >= len(found):
            raise UnknownPartitionError(
                ErrorCode.UNKNOWN_PARTITION,
                f"topic {topic!r} has no partition {number}: it has 0 to {len(found) - 1}",
            )
    return [TopicPartition(topic, number) for number in partitions] or found


def _copy(
    consumer: Consumer,
    write_record: Callable[[ConsumerRecord], bytes],
    output: BinaryIO,
    max_records: int | None,
    timeout_ms: int | None,
) -> None:
    left = max_records
    last_ms = monotonic_ms()
    while not consumer.is_stopped and (left is None or left > 0):
        wait_ms = POLL_MS if timeout_ms is None else max(0, min(POLL_MS, last_ms + timeout_ms - monotonic_ms()))
        records = consumer.poll(POLL_RECORDS if left is None else min(left, POLL_RECORDS), wait_ms)
        if records:
            output.write(b"".join(map(write_record, records)))
            output.flush()
            last_ms = monotonic_ms()
            left = None if left is None else left - len(records)
        elif timeout_ms is not None and monotonic_ms() - last_ms >= timeout_ms:
            return


def _formatter(template: str, *, for_terminal: bool) -> Callable[[ConsumerRecord], bytes]:
    unknown = [field for field in _FIELD.findall(template) if field not in _FIELDS]
    if unknown:
        raise click.BadParameter(f"unknown field {{{unknown[0]}}}: there are {', '.join(_FIELDS)}")
    if not _FIELD.search(template):
        raise click.BadParameter(
            f"{template!r:.100} has no field, so all records would look alike: give such as '{{offset}} {{value}}\\n'",
            param_hint="--format",
        )
    pieces = _FIELD.split(_unescape(template))  # text, field, text, field, … text
    texts = [piece.encode() for piece in pieces[::2]]
    fields = [_FIELDS[name] for name in pieces[1::2]]

    def write(record: ConsumerRecord) -> bytes:
        written = [texts[0]]
        for field, text in zip(fields, texts[1:], strict=True):
            content = field(record)
            written += (_for_terminal(content) if for_terminal else content, text)
        return b"".join(written)

    return write


def _for_terminal(content: bytes) -> bytes:
    """The bytes as text that a terminal shows, and does not obey."""
    return escaped(content.decode(errors="backslashreplace"), kept="\t\n").encode()


def _unescape(template: str) -> str:
    escapes = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\0": "\0", r"\\": "\\"}
    return re.sub(r"\\[ntr0\\]", lambda match: escapes[match[0]], template)
