"""`penstock groups`: list, describe, alter, reset, delete; and where groups are, and where they shall be."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict

import click

from penstock.admin import Admin
from penstock.cli.service import Service, parse_offsets, parse_pairs, parse_time_ms, service_command, time_text
from penstock.group_model import Group
from penstock.model import CommittedOffset, TopicPartition


@click.group()
def groups() -> None:
    """Look at groups, their members and lag, and move their offsets."""


@groups.command("offsets")
@click.argument("group")
@click.option("--topic", metavar="TOPIC", help="Of this topic only.")
@service_command
def group_offsets(service: Service, group: str, topic: str | None) -> None:
    """Show what GROUP has committed, and how far that is behind."""
    admin = Admin(transport=service.transport)
    found = admin.group_offsets(group, topic)
    lags = _lags(admin, found)
    service.show(
        [{**asdict(each), "lag": lag} for each, lag in zip(found, lags, strict=True)],
        title=group,
        columns=("topic", "partition", "offset", "lag", "committed at", "metadata"),
        rows=[
            (each.topic, each.partition, each.offset, lag, time_text(each.committed_at_ms), each.metadata)
            for each, lag in zip(found, lags, strict=True)
        ],
    )


def _lags(admin: Admin, found: Sequence[CommittedOffset]) -> list[int]:
    """What each has still to read: what retention or truncation has removed does not count. Two requests a topic."""
    topics = dict.fromkeys(each.topic for each in found)
    starts, ends = ({name: admin.list_offsets(name, at) for name in topics} for at in ("earliest", "latest"))
    bounds = ((starts[each.topic].get(each.partition), ends[each.topic].get(each.partition)) for each in found)
    return [max(0, (end or 0) - max(each.offset, start or 0)) for each, (start, end) in zip(found, bounds, strict=True)]


@groups.command("commit")
@click.argument("group")
@click.argument("topic")
@click.argument("offsets", nargs=-1, required=True, metavar="PARTITION=OFFSET...")
@service_command
def group_commit(service: Service, group: str, topic: str, offsets: tuple[str, ...]) -> None:
    """Set the offsets of GROUP in TOPIC: of the next record to read. Consumers that choose their partitions
    themselves do not notice."""
    wanted = {TopicPartition(topic, number): offset for number, offset in parse_offsets(offsets).items()}
    Admin(transport=service.transport).commit_group_offsets(
        group, wanted, metadata=f"penstock groups commit {time_text(time.time_ns() // 1_000_000)}"
    )
    service.say(
        [{"topic": topic, "partition": each.partition, "offset": offset} for each, offset in wanted.items()],
        f"committed {len(wanted)} offsets of {topic} for {group}",
    )


@groups.command("list")
@service_command
def list_groups(service: Service) -> None:
    """List all groups."""
    found = Admin(transport=service.transport).list_groups()
    service.show(
        [asdict(group) for group in found],
        title="groups",
        columns=("group", "members", "epoch", "settings"),
        rows=[(each.group, each.member_count, each.epoch, _settings(each)) for each in found],
    )


@groups.command()
@click.argument("group")
@service_command
def describe(service: Service, group: str) -> None:
    """Show the members of GROUP, who owns which partition, and how far it is behind."""
    found = Admin(transport=service.transport).describe_group(group)
    names = {each.member_id: each.client_id or each.instance_id or each.member_id for each in found.members}
    lag = sum(each.lag or 0 for each in found.partitions)
    service.show(
        {
            **asdict(found.group),
            "members": [asdict(each) for each in found.members],
            "partitions": [asdict(each) for each in found.partitions],
        },
        title=f"{group}, epoch {found.group.epoch}, {_settings(found.group)}; "
        f"members: {', '.join(names.values()) or 'none'}; {lag} behind in all",
        columns=("topic", "partition", "owner", "goes to", "offset", "lag", "committed at"),
        rows=[
            (
                each.topic,
                each.partition,
                names.get(each.owner or ""),
                names.get(each.assigned_to or "") if each.assigned_to != each.owner else None,
                each.offset,
                each.lag,
                time_text(each.committed_at_ms) if each.offset is not None else None,
            )
            for each in found.partitions
        ],
    )


@groups.command()
@click.argument("group")
@click.option("--config", "settings", multiple=True, metavar="NAME=VALUE", help="A setting; may come often.")
@click.option("--default", "defaults", multiple=True, metavar="NAME", help="Set a setting back to its default.")
@service_command
def alter(service: Service, group: str, settings: tuple[str, ...], defaults: tuple[str, ...]) -> None:
    """Change settings of GROUP, also before anybody joins it."""
    pairs = parse_pairs(settings, "NAME=VALUE")
    config = {name: _value(text) for name, text in pairs.items()} | dict.fromkeys(defaults)
    if not config:
        raise click.UsageError("nothing to change: give --config or --default")
    altered = Admin(transport=service.transport).alter_group(group, config)
    service.say(asdict(altered), f"{group}: {_settings(altered)}")


@groups.command()
@click.argument("group")
@click.argument("topic")
@click.argument("offsets", nargs=-1, metavar="[PARTITION=OFFSET...]")
@click.option("--to", type=click.Choice(["earliest", "latest"]), help="An end.")
@click.option("--at", metavar="TIME", help="The first record at or after this time (ISO 8601).")
@click.option("--shift-by", type=int, metavar="N", help="N records on, or back if negative.")
@click.option("--partition", "partitions", type=int, multiple=True, help="Only this one; may come often.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--force", is_flag=True, help="Although members live: they start again from the new offsets.")
@service_command
def reset(
    service: Service,
    group: str,
    topic: str,
    offsets: tuple[str, ...],
    to: str | None,
    at: str | None,
    shift_by: int | None,
    partitions: tuple[int, ...],
    dry_run: bool,
    force: bool,
) -> None:
    """Set the offsets of GROUP in TOPIC: by one of --to, --at, --shift-by, or offsets given."""
    done = Admin(transport=service.transport).reset_group_offsets(
        group,
        topic,
        to=to,
        timestamp_ms=None if at is None else parse_time_ms(at),
        shift_by=shift_by,
        offsets=parse_offsets(offsets) or None,
        partitions=partitions or None,
        dry_run=dry_run,
        force=force,
    )
    service.show(
        [{"partition": partition, **asdict(each)} for partition, each in done.items()],
        title=f"{group} would be set, nothing was changed" if dry_run else f"{group} was set",
        columns=("partition", "old offset", "new offset"),
        rows=[(partition, each.old_offset, each.new_offset) for partition, each in done.items()],
    )


@groups.command()
@click.argument("group")
@click.option("--yes", is_flag=True, help="Do not ask.")
@service_command
def delete(service: Service, group: str, yes: bool) -> None:
    """Delete GROUP and its offsets."""
    if not yes:
        click.confirm(f"Delete group {group} and its offsets?", abort=True, err=True)
    Admin(transport=service.transport).delete_group(group)
    service.say({"deleted": group}, f"deleted {group}")


def _settings(group: Group) -> str:
    return " ".join(f"{name}={value}" for name, value in group.config.items())


def _value(text: str) -> object:
    """A number where it is one: the service says what it takes."""
    try:
        return json.loads(text)
    except ValueError:
        return text
