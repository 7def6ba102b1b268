"""The target of a subscription on the command line."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from penstock.local_files import LOCAL_FUNCTION_ARNS, find_local_file, is_loopback

Command = TypeVar("Command", bound=Callable[..., Any])

_NAME = re.compile(r"[\w-]{1,64}", re.ASCII)
TARGETS = "one of --lambda, --sqs, --event-bus, --https and --topic"
_OPTIONS = (
    click.option(
        "--lambda",
        "function",
        metavar="ARN",
        help="Deliver to this Lambda function; on this machine its name is enough.",
    ),
    click.option("--sqs", metavar="URL", help="Deliver to this standard SQS queue."),
    click.option("--event-bus", metavar="ARN", help="Deliver to this EventBridge bus."),
    click.option("--https", metavar="URL", help="Deliver to this endpoint, by signed requests."),
    click.option("--topic", "copy_to", metavar="NAME", help="Copy the records to this topic."),
    click.option("--secret-file", type=click.Path(path_type=Path), help="The file with the endpoint's secret."),
    click.option("--secret-env", metavar="NAME", help="The environment variable with the endpoint's secret."),
)


def target_options(command: Command) -> Command:
    """Decorate a command whose keyword arguments are those of `target_of`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def target_of(**given: Any) -> dict[str, Any] | None:
    """The target as the API takes it, None if none is given. Raises click.UsageError for several.

    The secret comes from a file or a variable, because other users of a machine see the arguments of a command.
    """
    targets = {
        "lambda": _function_arn(given["function"]),
        "sqs": given["sqs"],
        "event_bus": given["event_bus"],
        "https": given["https"],
        "topic": given["copy_to"],
    }
    chosen = {kind: value for kind, value in targets.items() if value is not None}
    secret = _secret(given["secret_file"], given["secret_env"])
    if len(chosen) > 1:
        raise click.UsageError(f"give {TARGETS}")
    if secret is not None and "https" not in chosen:
        raise click.UsageError("--secret-file and --secret-env go with --https")
    if "https" in chosen:
        return {"https": {"url": chosen["https"]} | ({} if secret is None else {"secret": secret})}
    return chosen or None


def _function_arn(given: str | None) -> str | None:
    """The ARN of a function that is named alone: that of `penstock dev` and of the local stack."""
    if given is None or not _NAME.fullmatch(given):
        return given
    context = click.get_current_context(silent=True)
    url = (context and context.params.get("url")) or os.environ.get("PENSTOCK_URL")
    if not (is_loopback(url) if url else find_local_file("local.env")):
        raise click.UsageError(
            f"--lambda {given}: give the function's ARN; a name alone is for a server on this machine"
        )
    return f"{LOCAL_FUNCTION_ARNS}{given}"


def _secret(file: Path | None, variable: str | None) -> str | None:
    if file is not None and variable is not None:
        raise click.UsageError("give --secret-file or --secret-env, not both")
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise click.BadParameter(f"{str(file)!r:.100}: {error}", param_hint="--secret-file") from error
    if variable is not None:
        if variable not in os.environ:
            raise click.BadParameter(f"{variable!r:.100} is not set", param_hint="--secret-env")
        return os.environ[variable]
    return None
