"""The `penstock` command. Exit codes: 0 done, 1 failed (one line on stderr says why), 2 wrong usage."""

from importlib.metadata import entry_points

import click

from penstock.cli.acls import acls
from penstock.cli.audit import audit
from penstock.cli.completion import completion
from penstock.cli.config import config
from penstock.cli.console import console
from penstock.cli.cost import cost
from penstock.cli.dead_letters import dead_letters
from penstock.cli.dev import dev
from penstock.cli.doctor import doctor
from penstock.cli.groups import groups
from penstock.cli.jobs import jobs
from penstock.cli.local import local
from penstock.cli.metrics import metrics
from penstock.cli.offsets import offsets
from penstock.cli.producers import producers
from penstock.cli.quotas import quotas
from penstock.cli.records.consume import consume
from penstock.cli.records.produce import produce
from penstock.cli.restore import restore
from penstock.cli.scheduled import scheduled
from penstock.cli.share_groups import share_groups
from penstock.cli.subscriptions import subscriptions
from penstock.cli.topics import topics
from penstock.cli.work import work
from penstock.cli.zones import zones

__all__ = ["main"]


PLUGINS = "penstock.commands"  # the group of entry points by which other packages bring commands


class _Commands(click.Group):
    """The commands of the SDK, and those that other packages bring: they are imported when they are called."""

    def list_commands(self, context: click.Context) -> list[str]:
        """All names."""
        return sorted({*super().list_commands(context), *(each.name for each in entry_points(group=PLUGINS))})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command of this name."""
        own = super().get_command(context, name)
        if own is not None:
            return own
        for each in entry_points(group=PLUGINS, name=name):
            found = each.load()
            return found if isinstance(found, click.Command) else None
        return None


@click.group(name="penstock", cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="penstock")
def main() -> None:
    """Penstock: a serverless message queue in your own AWS account.

    The commands find the service by --url, else PENSTOCK_URL, else the local one (`penstock dev`) of this
    directory or a parent. Credentials and region come from the usual AWS chain. With --json a command prints for
    programs.
    """


for command in (
    topics,
    produce,
    consume,
    scheduled,
    offsets,
    groups,
    share_groups,
    subscriptions,
    work,
    dead_letters,
    producers,
    quotas,
    acls,
    zones,
    restore,
    jobs,
    audit,
    metrics,
    cost,
    console,
    doctor,
    config,
    dev,
    local,
    completion,
):
    main.add_command(command)
