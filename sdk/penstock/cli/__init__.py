"""The `penstock` command. Exit codes: 0 done, 1 failed (one line on stderr says why), 2 wrong usage."""

import click

from penstock.cli.consume import consume
from penstock.cli.groups import groups
from penstock.cli.jobs import jobs
from penstock.cli.local import local
from penstock.cli.offsets import offsets
from penstock.cli.produce import produce
from penstock.cli.topics import topics
from penstock.cli.zones import zones


@click.group(name="penstock", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="penstock")
def main() -> None:
    """Penstock: a serverless message queue in your own AWS account.

    The service is found by --url, else PENSTOCK_URL, else the local stack (`penstock local up`) of this directory or
    a parent. Credentials and region come from the usual AWS chain. Add --json to any command for programs.
    """


for command in (topics, produce, consume, offsets, groups, zones, jobs, local):
    main.add_command(command)
