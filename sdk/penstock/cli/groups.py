"""`penstock groups`: list, describe, alter, reset and delete groups, and read and set their offsets."""

import time
from collections.abc import Sequence
from dataclasses import asdict

import click

from penstock.admin.admin import Admin
from penstock.cli.completion import complete_groups, complete_topics
from penstock.cli.offsets import AT, DRY_RUN, PARTITIONS, TO, reset_title, show_resets
from penstock.cli.options.settings import (
    BACK_TO_DEFAULT,
    CONFIG,
    GROUP_DEFAULTS,
    YES,
    changed_settings_text,
    confirm,
    parse_settings,
    told_settings,
)
from penstock.cli.service import Service, parse_offsets, service_command, time_text
from penstock.model import CommittedOffset, TopicPartition
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.text import counted


@click.group()
def groups() -> None:
    """Look at groups, their members and lag, and move their offsets."""


@groups.command("offsets")
@click.argument("group", shell_complete=complete_groups)
@click.option("--topic", metavar="TOPIC", help="Only this topic.")
@service_command
def group_offsets(service: Service, group: str, topic: str | None) -> None:
    """Show the offsets that GROUP has committed, and the lag of each.

    For example: penstock groups offsets billing --topic orders
    """
    admin = Admin(transport=service.transport)
    found = admin.group_offsets(group, topic)
    if not found:
        admin.describe_group(group)  # raises UNKNOWN_GROUP: a group without offsets is not the same
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
    """The records that each partition has still to read, without those that are gone. Two requests a topic."""
    topics = dict.fromkeys(each.topic for each in found)
    starts, ends = ({name: admin.list_offsets(name, at) for name in topics} for at in ("earliest", "latest"))
    bounds = ((starts[each.topic].get(each.partition), ends[each.topic].get(each.partition)) for each in found)
    return [max(0, (end or 0) - max(each.offset, start or 0)) for each, (start, end) in zip(found, bounds, strict=True)]


@groups.command("commit")
@click.argument("group", shell_complete=complete_groups)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("offsets", nargs=-1, required=True, metavar="PARTITION=OFFSET...")
@click.option("--may-go-back", is_flag=True, help="Also set an offset below the group's.")
@service_command
def group_commit(service: Service, group: str, topic: str, offsets: tuple[str, ...], may_go_back: bool) -> None:
    """Set the offsets of GROUP in TOPIC: of the next records to read.

    Consumers that choose their partitions themselves do not notice.

    For example: penstock groups commit billing orders 0:1200 1:0
    """
    wanted = {TopicPartition(topic, number): offset for number, offset in parse_offsets(offsets).items()}
    Admin(transport=service.transport).commit_group_offsets(
        group,
        wanted,
        metadata=f"penstock groups commit {time_text(time.time_ns() // 1_000_000)}",
        may_go_back=may_go_back,
    )
    service.say(
        [{"topic": topic, "partition": each.partition, "offset": offset} for each, offset in wanted.items()],
        f"committed {counted(len(wanted), 'offset')} of {topic} for {group}",
    )


@groups.command("list")
@service_command
def list_groups(service: Service) -> None:
    """List all groups.

    For example: penstock groups list
    """
    found = Admin(transport=service.transport).list_groups()
    service.show(
        [asdict(group) for group in found],
        title="groups",
        columns=("group", "members", "changed settings"),
        rows=[(each.group, each.member_count, changed_settings_text(each.config, GROUP_DEFAULTS)) for each in found],
    )


@groups.command()
@click.argument("group", shell_complete=complete_groups)
@service_command
def describe(service: Service, group: str) -> None:
    """Show the members of GROUP, the owner of each partition, and its lag.

    For example: penstock groups describe billing
    """
    found = Admin(transport=service.transport).describe_group(group)
    names = {each.member_id: each.client_id or each.instance_id or each.member_id for each in found.members}
    lag = sum(each.lag or 0 for each in found.partitions)
    service.show(
        {
            **asdict(found.group),
            "members": [asdict(each) for each in found.members],
            "partitions": [asdict(each) for each in found.partitions],
        },
        title=f"{group}; {told_settings(found.group.config, GROUP_DEFAULTS)}; "
        f"members: {', '.join(names.values()) or 'none'}; {lag} behind in all",
        columns=("topic", "partition", "owner", "goes to", "offset", "lag", "committed at"),
        rows=[
            (
                each.topic,
                each.partition,
                names.get(each.owner or "") if each.waits_for is None else f"waits for {each.waits_for}",
                names.get(each.assigned_to or "") if each.assigned_to != each.owner else None,
                each.offset,
                each.lag,
                time_text(each.committed_at_ms) if each.offset is not None else None,
            )
            for each in found.partitions
        ],
    )


@groups.command()
@click.argument("group", shell_complete=complete_groups)
@CONFIG
@BACK_TO_DEFAULT
@service_command
def alter(service: Service, group: str, settings: tuple[str, ...], defaults: tuple[str, ...]) -> None:
    """Change settings of GROUP, also before a member joins it.

    For example: penstock groups alter billing --config session_timeout_ms=30s
    """
    config = parse_settings(settings) | dict.fromkeys(defaults)
    if not config:
        raise click.UsageError("nothing to change: give --config or --default")
    altered = Admin(transport=service.transport).alter_group(group, config)
    service.say(asdict(altered), f"{group}; {told_settings(altered.config, GROUP_DEFAULTS)}")


@groups.command()
@click.argument("group", shell_complete=complete_groups)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("offsets", nargs=-1, metavar="[PARTITION=OFFSET...]")
@TO
@AT
@click.option("--shift-by", type=int, metavar="N", help="By N records forward, or back if N is negative.")
@PARTITIONS
@DRY_RUN
@click.option("--force", is_flag=True, help="Even if the group has members: they start again from the new offsets.")
@click.option("--create", is_flag=True, help="Make the group if there is none of that name.")
@service_command
def reset(
    service: Service,
    group: str,
    topic: str,
    offsets: tuple[str, ...],
    to: str | None,
    at_ms: int | None,
    shift_by: int | None,
    partitions: tuple[int, ...],
    dry_run: bool,
    force: bool,
    create: bool,
) -> None:
    """Set the offsets of GROUP in TOPIC by --to, --at, --shift-by, or by PARTITION=OFFSET.

    For example: penstock groups reset billing orders --to earliest --dry-run
    """
    admin = Admin(transport=service.transport)
    if not create:
        _check_known(admin, group)
    done = admin.reset_group_offsets(
        group,
        topic,
        to=to,
        timestamp_ms=at_ms,
        shift_by=shift_by,
        offsets=parse_offsets(offsets) or None,
        partitions=partitions or None,
        dry_run=dry_run,
        force=force,
    )
    show_resets(service, done, title=reset_title(group, dry_run=dry_run), what="offset")


def _check_known(admin: Admin, group: str) -> None:
    """Raises UNKNOWN_GROUP, so that a misspelt name makes no new group."""
    try:
        admin.describe_group(group)
    except PenstockError as error:
        if error.code is ErrorCode.UNKNOWN_GROUP:
            raise PenstockError(error.code, f"{error.message}; give --create to make it") from error


@groups.command()
@click.argument("group", shell_complete=complete_groups)
@YES
@service_command
def delete(service: Service, group: str, yes: bool) -> None:
    """Delete GROUP and its offsets.

    For example: penstock groups delete billing
    """
    confirm(f"Delete group {group} and its offsets?", yes=yes)
    Admin(transport=service.transport).delete_group(group)
    service.say({"deleted": group}, f"deleted {group}")


@groups.command("delete-offsets")
@click.argument("group", shell_complete=complete_groups)
@click.argument("topic", shell_complete=complete_topics)
@PARTITIONS
@YES
@service_command
def delete_offsets(service: Service, group: str, topic: str, partitions: tuple[int, ...], yes: bool) -> None:
    """Delete the offsets of GROUP in TOPIC, which none of its members reads.

    For example: penstock groups delete-offsets billing orders --partition 2
    """
    confirm(f"Delete the offsets of group {group} in topic {topic}?", yes=yes)
    gone = Admin(transport=service.transport).delete_group_offsets(group, topic, partitions or None)
    service.show(
        [{"topic": topic, "partition": partition, "old_offset": offset} for partition, offset in gone.items()],
        title=f"{group} has no offsets there any more",
        columns=("topic", "partition", "old offset"),
        rows=[(topic, partition, offset) for partition, offset in gone.items()],
    )
