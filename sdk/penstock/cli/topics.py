"""`penstock topics`: create, list, describe, alter, rebalance, delete, truncate."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from penstock.admin.admin import Admin
from penstock.admin.caller_rights import visible_topic_users
from penstock.admin.partition_change import preview, records_of
from penstock.cli.completion import complete_topics
from penstock.cli.options.settings import (
    BACK_TO_DEFAULT,
    CONFIG,
    TOPIC_DEFAULTS,
    YES,
    changed_settings_text,
    confirm,
    parse_settings,
    told_settings,
)
from penstock.cli.options.times import DURATION, DURATION_OR_FOREVER
from penstock.cli.service import IF_NOT_EXISTS, CommandError, Service, parse_offsets, service_command, time_text
from penstock.errors import TopicExistsError
from penstock.model import Topic
from penstock.model.heat import HotPartition
from penstock.model.push import TopicUser
from penstock.model.times import duration_text
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import UNLIMITED
from penstock_core.text import counted, escaped


@click.group()
def topics() -> None:
    """Create, look at, change and delete topics."""


@topics.command()
@click.argument("name")
@click.option(
    "--partitions", type=click.IntRange(min=1), default=1, show_default=True, help="The number of partitions."
)
@click.option(
    "--retention", type=DURATION_OR_FOREVER, help="How long to keep records, such as 90m, 12h, 14d, or forever."
)
@IF_NOT_EXISTS
@CONFIG
@service_command
def create(
    service: Service,
    name: str,
    partitions: int,
    retention: int | None,
    if_not_exists: bool,
    settings: tuple[str, ...],
) -> None:
    """Create the topic NAME.

    For example: penstock topics create orders --partitions 6 --if-not-exists
    """
    config = parse_settings(settings) | ({} if retention is None else {"retention_ms": retention})
    admin = Admin(transport=service.transport)
    try:
        topic = admin.create_topic(name, partitions, config)
    except TopicExistsError:
        if not if_not_exists:
            raise
        topic = admin.describe_topic(name).topic
        partitions_text = counted(topic.partitions, "partition")
        service.say(asdict(topic), f"{topic.name} exists, with {partitions_text}: nothing was changed")
        return
    service.say(asdict(topic), f"created {topic.name} with {counted(topic.partitions, 'partition')}")


@topics.command("list")
@service_command
def list_topics(service: Service) -> None:
    """List all topics.

    For example: penstock topics list
    """
    found = Admin(transport=service.transport).list_topics()
    _show(service, [asdict(topic) for topic in found], "topics", found)


@topics.command()
@click.argument("name", shell_complete=complete_topics)
@service_command
def describe(service: Service, name: str) -> None:
    """Show the topic NAME, and the offsets of each partition.

    For example: penstock topics describe orders
    """
    described = Admin(transport=service.transport).describe_topic(name)
    topic = described.topic
    service.show(
        {**asdict(topic), "offsets": [asdict(each) for each in described.offsets]},
        title=f"{topic.name}, id {topic.topic_id}, created {time_text(topic.created_at_ms)}, "
        f"keeps records {_kept(topic.config)}; {told_settings(topic.config, TOPIC_DEFAULTS)}",
        columns=("partition", "state", "log start", "high watermark", "records", "bytes"),
        rows=[
            (
                each.partition,
                each.state,
                each.log_start_offset,
                each.high_watermark,
                records_of(each),
                each.stored_bytes,
            )
            for each in described.offsets
        ],
    )


@topics.command()
@click.argument("name", shell_complete=complete_topics)
@click.option("--partitions", type=click.IntRange(min=1), help="How many partitions take new records.")
@click.option(
    "--retention", type=DURATION_OR_FOREVER, help="How long to keep records, such as 90m, 12h, 14d, or forever."
)
@CONFIG
@BACK_TO_DEFAULT
@YES
@service_command
def alter(
    service: Service,
    name: str,
    partitions: int | None,
    retention: int | None,
    settings: tuple[str, ...],
    defaults: tuple[str, ...],
    yes: bool,
) -> None:
    """Change how many partitions of the topic NAME take new records, or its settings.

    Before partitions drain, it says what happens to them, and asks.

    For example: penstock topics alter orders --retention 30d
    """
    config = {**parse_settings(settings), **dict.fromkeys(defaults)} | (
        {} if retention is None else {"retention_ms": retention}
    )
    if partitions is None and not config:
        raise click.UsageError("nothing to alter: give --partitions, --retention, --config or --default")
    admin = Admin(transport=service.transport)
    if partitions is not None:
        _preview(admin, name, partitions, yes=yes)
    if config:
        topic = admin.alter_topic(name, config)
    if partitions is not None:
        topic = admin.set_partitions(name, partitions)
    _show(service, asdict(topic), "altered", [topic])


def _preview(admin: Admin, name: str, partitions: int, *, yes: bool) -> None:
    """Say on stderr what a change of the partitions does, and ask if some drain."""
    described = admin.describe_topic(name)
    for line in preview(described, partitions):
        click.echo(line, err=True)
    if partitions < described.topic.writable_partitions:
        confirm(f"Let {name} have {partitions} writable partitions?", yes=yes)


@topics.command()
@click.argument("name", shell_complete=complete_topics)
@YES
@click.option("--force", is_flag=True, help="Delete it although share groups or subscriptions use it, or may use it.")
@service_command
def delete(service: Service, name: str, yes: bool, force: bool) -> None:
    """Delete the topic NAME and all its records.

    If share groups or subscriptions use it, it names those that you may see, counts the others, and needs --force.

    For example: penstock topics delete orders --yes
    """
    admin = Admin(transport=service.transport)
    users, hidden = visible_topic_users(admin, [name])
    told = [f"{each.kind} {each.name} uses {name}: {each.use}" for each in users]
    told += hidden
    if not service.as_json:
        for line in told:
            click.echo(escaped(" ".join(line.split())), err=True)
    if told and not force:
        raise CommandError(_in_use(name, users, hidden), as_json=service.as_json)
    confirm(f"Delete {name} and all its records, for ever?", yes=yes)
    admin.delete_topic(name)
    service.say({"deleted": name}, f"deleted {name}")


def _in_use(name: str, users: list[TopicUser], hidden: list[str]) -> PenstockError:
    why = (
        "is in use: change or delete its users first"
        if users
        else "is in use, or may be: ask somebody who may see its users"
    )
    return PenstockError(
        ErrorCode.INVALID_REQUEST,
        f"{name} {why}, or give --force",
        users=[asdict(each) for each in users],
        hidden=hidden,
    )


@topics.command()
@click.argument("name", shell_complete=complete_topics)
@click.argument("offsets", nargs=-1, required=True, metavar="PARTITION=OFFSET...")
@YES
@service_command
def truncate(service: Service, name: str, offsets: tuple[str, ...], yes: bool) -> None:
    """Remove the records of the topic NAME below an offset, in one or more partitions.

    For example: penstock topics truncate orders 0:1200
    """
    before = parse_offsets(offsets)
    confirm(f"Remove records of {name}, for ever?", yes=yes)
    starts = Admin(transport=service.transport).truncate(name, before)
    service.show(
        [{"partition": partition, "log_start_offset": start} for partition, start in starts.items()],
        title=name,
        columns=("partition", "log start"),
        rows=list(starts.items()),
    )


@click.command()
@click.argument("name", shell_complete=complete_topics)
@click.option("--since", type=DURATION, default="5m", show_default=True, help="Count the records of this last time.")
@service_command
def rebalance(service: Service, name: str, since: int) -> None:
    """Look at the newest records of the topic NAME, and advise: add partitions, spread a key, or nothing.

    It changes nothing.

    For example: penstock topics rebalance orders
    """
    heat = Admin(transport=service.transport).topic_heat(name, since)
    by_number = {each.partition: each for each in heat.hot}
    service.show(
        {
            "topic": name,
            "since_ms": since,
            "partitions": [{"partition": each, "records": count} for each, count in heat.records.items()],
            "hot": [_document(each) for each in heat.hot],
            "advice": heat.advice,
        },
        title=f"{name}, the last {duration_text(since)}: {heat.advice}",
        columns=("partition", "records", "a second", "hot key", "its share"),
        rows=[_row(number, count, since, by_number.get(number)) for number, count in heat.records.items()],
    )


topics.add_command(rebalance)


def _show(service: Service, document: Any, title: str, found: list[Topic]) -> None:
    service.show(
        document,
        title=title,
        columns=("topic", "partitions", "changed settings", "created"),
        rows=[
            (
                topic.name,
                _partitions_text(topic),
                changed_settings_text(topic.config, TOPIC_DEFAULTS),
                time_text(topic.created_at_ms),
            )
            for topic in found
        ],
    )


def _partitions_text(topic: Topic) -> str:
    draining = topic.partitions - topic.writable_partitions
    return f"{topic.writable_partitions} + {draining} draining" if draining else str(topic.partitions)


def _kept(config: Mapping[str, Any]) -> str:
    """The retention of a topic in words; a service that does not tell it keeps them for ever."""
    time_ms, size = config.get("retention_ms", UNLIMITED), config.get("retention_bytes", UNLIMITED)
    kept = "for ever" if time_ms == UNLIMITED else f"for {duration_text(time_ms)}"
    return kept if size == UNLIMITED else f"{kept}, {size} bytes a partition"


def _document(hot: HotPartition) -> dict[str, Any]:
    return {**asdict(hot), "key": None if hot.key is None else hot.key.decode(errors="replace")}


def _row(number: int, count: int, since_ms: int, hot: HotPartition | None) -> tuple[object, ...]:
    if hot is None or hot.key is None:
        return number, count, round(1_000 * count / max(1, since_ms), 1), None, None
    key = hot.key.decode(errors="replace")
    return number, count, round(1_000 * count / max(1, since_ms), 1), key, f"{hot.key_records / hot.sampled:.0%}"
