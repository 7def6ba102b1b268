"""`penstock completion`: the script for a shell, and the names that it completes by a call to the service."""

from collections.abc import Callable, Iterable

import click
from click.shell_completion import get_completion_class

from penstock.api import calls, group_admin_calls, schedule_calls, share_group_calls, subscription_calls
from penstock.cli.local import find_checkout
from penstock.configuration import find_configuration
from penstock.http.client import Client
from penstock.http.steps import Calls
from penstock.http.transport import HttpTransport
from penstock.jobs.local import LocalPlace

ANSWER_TIMEOUT_S = 1.5  # you wait with a finger on the key

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, topics, groups and jobs in SHELL.

    In bash: eval "$(penstock completion bash)". In fish: penstock completion fish | source. For every new shell, put
    that line into its start-up file.

    For example: penstock completion bash > ~/.penstock-completion
    """
    script = get_completion_class(shell)
    assert script is not None
    root = click.get_current_context().find_root().command
    click.echo(script(root, {}, "penstock", "_PENSTOCK_COMPLETE").source())


def _by_call(names: Callable[[], Calls[Iterable[str]]]) -> Complete:
    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        try:
            given = context.find_root().obj  # a test's transport
            transport = given or HttpTransport(
                find_configuration(context.params.get("url"), context.params.get("region")), timeout_s=ANSWER_TIMEOUT_S
            )
            found = Client(transport, timeout_ms=0).call(names())
        except Exception:  # whatever it is: a shell has no place to show it
            return []
        return [name for name in found if name.startswith(incomplete)]

    return complete


def _topics() -> Calls[Iterable[str]]:
    return [each.name for each in (yield from calls.list_topics())]


def _groups() -> Calls[Iterable[str]]:
    return [each.group for each in (yield from group_admin_calls.list_groups())]


def _share_groups() -> Calls[Iterable[str]]:
    return [each.group for each in (yield from share_group_calls.list_share_groups())]


def _subscriptions() -> Calls[Iterable[str]]:
    return [each.name for each in (yield from subscription_calls.list_subscriptions())]


def _schedules() -> Calls[Iterable[str]]:
    return [each.name for each in (yield from schedule_calls.list_schedules())]


complete_topics = _by_call(_topics)
complete_groups = _by_call(_groups)
complete_share_groups = _by_call(_share_groups)
complete_subscriptions = _by_call(_subscriptions)
complete_schedules = _by_call(_schedules)


def complete_jobs(_context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The jobs of the checkout."""
    try:
        return [name for name in LocalPlace(find_checkout()).jobs() if name.startswith(incomplete)]
    except Exception:  # as above
        return []
