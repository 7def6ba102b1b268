"""The `penstock` command. Exit codes: 0 done, 1 failed (one line on stderr says why), 2 wrong usage.

A command's module is imported when the command runs: `penstock --help` and each command start without the others.
"""

import importlib
import itertools
import json
from importlib.metadata import entry_points
from typing import Any

import click

__all__ = ["main"]

PLUGINS = "penstock.commands"  # the group of entry points by which other packages bring commands

# The lines of `penstock --help`: the first sentence of the help of each command. Its module has its name.
SUMMARIES = {
    "acls": "Say which principal may use which topic, group or other resource.",
    "apply": "Bring topics, groups, subscriptions, schedules, access rules and quotas to what a file says.",
    "audit": "Look at the audit trail: who created, altered, deleted, reset or redrove what.",
    "bench": "Measure throughput and latency of your stage from this machine, on a topic of its own.",
    "completion": "Print the script that completes commands, topics, groups and jobs in SHELL.",
    "config": "Look up settings: their values, defaults, sources and effects.",
    "console": "Show topics, records, consumers and the state of the service in your browser.",
    "consume": "Write the records of TOPIC to standard output, as they come, until you interrupt it (INT or TERM).",
    "cost": "Estimate the month of a workload, or price yesterday's use, from counted calls and list prices.",
    "dead-letters": "Look at records that no consumer could handle, send them back, or remove them.",
    "dev": "Run a Penstock on this machine, with the service's own code, without AWS and without a checkout.",
    "doctor": "Check the service, the account and a round trip, and say what to mend.",
    "groups": "Look at groups, their members and lag, and move their offsets.",
    "jobs": "Run the Spark jobs here, on EMR Serverless or on Glue.",
    "local": "Run Penstock on this machine, from a checkout of its sources.",
    "mcp": "Let programs that speak the Model Context Protocol look at a stage, over standard input and output.",
    "metrics": "Print lag and age of each consumer, and the records of each topic, in Prometheus' text format.",
    "mirrors": "Repeat topics in another stage, offset by offset, and let the other stage take over.",
    "offsets": "Show the first and the last offset of each partition of TOPIC.",
    "produce": "Send each line of a file, or of standard input, to TOPIC as a record.",
    "producers": "Look after the ids of transactional producers.",
    "prove": "Show on a deployed stage what no emulator can show, for a dollar and ten minutes at most.",
    "quotas": "Bound what principals may send, read and create, and what topics take and hold.",
    "restore": "Bring a stage back to an earlier second, by tables that DynamoDB restores.",
    "scheduled": "List and cancel delayed records.",
    "schedules": "Create, look at, change and delete schedules: records that come at the times of a cron expression.",
    "share-groups": "Create, look at, change and delete share groups: consumers that share the records of a topic.",
    "subscriptions": "Create, look at, change and delete subscriptions: deliveries of topics to targets.",
    "topics": "Create, look at, change and delete topics.",
    "trace": "Tell where one record lies, who has handled it, and who has not.",
    "upgrade": "Tell whether a release may be deployed over a stage, or remove old versions of functions.",
    "work": "Run COMMAND once for each record of the share group GROUP, with the value on its standard input.",
    "zones": "Look at the zones, take one out of use and let it in again.",
}
# The same for the commands of packages in this distribution. `--help` imports the commands of other distributions.
PLUGIN_SUMMARIES = {
    "import": "Copy a Kafka topic, or drain an SQS queue, each record once.",
    "kafka": "Serve Kafka clients on this host, by calls to your Penstock service.",
}
# What other clients of queues and logs call it.
_OPTIONS_ELSEWHERE = {
    "--from-beginning": "--from earliest",
    "--max-messages": "--max-records",
    "--limit": "--max-records",
    "--idle": "--timeout",
    "--count": "--max-records",
}
_COMMANDS_ELSEWHERE = {"ls": "topics list", "version": "--version", "help": "--help", "describe": "topics describe"}
_FOLDERS = {"consume": "records.", "produce": "records."}
_AS_JSON = "penstock.as_json"  # in the meta of a context
_WHOLE = 10_000  # characters of a line in a list of commands: it wraps, and click would cut it at the terminal's width


class _JsonError(click.ClickException):
    """An error of the command line itself, for programs that asked for --json: in the form of the API's errors."""

    def __init__(self, error: click.ClickException) -> None:
        super().__init__(error.format_message())
        setattr(self, "exit_code", error.exit_code)  # noqa: B010 - click's types have it on the class alone

    def show(self, file: Any = None) -> None:
        """Print the error."""
        found = {"code": "INVALID_REQUEST", "message": self.message}
        click.echo(json.dumps({"error": found}), file=file, err=True)


class _Commands(click.Group):
    """The commands of the SDK, and those that other packages bring."""

    def list_commands(self, context: click.Context) -> list[str]:
        """All names, those that a program has added among them."""
        return sorted(
            {*super().list_commands(context), *SUMMARIES, *(each.name for each in entry_points(group=PLUGINS))}
        )

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command of this name. Imports its module, unless a program has added the command."""
        found: object = super().get_command(context, name)
        if found is None and name in SUMMARIES:
            own = name.replace("-", "_")
            found = getattr(importlib.import_module(f"penstock.cli.{_FOLDERS.get(name, '')}{own}"), own)
        elif found is None:
            for each in entry_points(group=PLUGINS, name=name):
                found = each.load()
        if isinstance(found, click.Group):
            for below in found.commands.values():
                below.short_help = below.get_short_help_str(_WHOLE)
        return found if isinstance(found, click.Command) else None

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does. A command of other clients gets the name that it has here."""
        if args and self.get_command(context, args[0]) is None and args[0] in _COMMANDS_ELSEWHERE:
            context.fail(f"No such command {args[0]!r}. Did you mean 'penstock {_COMMANDS_ELSEWHERE[args[0]]}'?")
        return super().resolve_command(context, args)

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """As click does. Notes whether the command line asks for JSON, which an error of it must know."""
        context.meta[_AS_JSON] = "--json" in itertools.takewhile(lambda each: each != "--", args)
        return super().parse_args(context, args)

    def invoke(self, context: click.Context) -> object:
        """As click does. An option of other clients gets the name that it has here."""
        try:
            return super().invoke(context)
        except click.ClickException as error:
            told: click.ClickException = error
            if isinstance(error, click.NoSuchOption):
                told = _with_our_option(error)
            elif isinstance(error, click.BadParameter) and error.param is not None:
                told = _with_range(error, error.param.type)
            if context.meta[_AS_JSON] and not hasattr(error, "as_json"):
                raise _JsonError(told) from error
            raise told from error.__cause__

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands as click does, without their modules."""
        listed = click.Group()
        for name in self.list_commands(context):
            summary = None if name in self.commands else SUMMARIES.get(name) or PLUGIN_SUMMARIES.get(name)
            found = click.Command(name, help=summary) if summary else self.get_command(context, name)
            if found is not None:
                listed.add_command(click.Command(name, short_help=found.get_short_help_str(_WHOLE)))
        listed.format_commands(context, formatter)


def _with_range(error: click.BadParameter, asked: click.ParamType[Any]) -> click.BadParameter:
    """Where a number is refused, click names a type or a formula: name the numbers that are taken."""
    if not isinstance(asked, click.IntRange | click.FloatRange):
        return error
    kind = "whole number" if isinstance(asked, click.IntRange) else "number"
    bounds = f"from {asked.min or 0:,} " + ("up" if asked.max is None else f"to {asked.max:,}")
    text = f"{error.message.partition(' is not ')[0]}: give a {kind} {bounds}"
    return click.BadParameter(text, error.ctx, error.param, error.param_hint)


def _with_our_option(error: click.NoSuchOption) -> click.NoSuchOption:
    option = _OPTIONS_ELSEWHERE.get(error.option_name)
    if option is None or error.ctx is None:
        return error
    if not any(option.split()[0] in each.opts for each in error.ctx.command.params):
        return error
    why = f"No such option {error.option_name!r}. Did you mean {option!r}?"
    return click.NoSuchOption(error.option_name, why, ctx=error.ctx)


@click.group(name="penstock", cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="penstock")
def main() -> None:
    """Penstock: a serverless message queue in your own AWS account.

    The commands find the service by --url, else PENSTOCK_URL, else the local one (`penstock dev`) of this
    directory or a parent. Credentials and region come from the usual AWS chain. With --json a command prints for
    programs.
    """
