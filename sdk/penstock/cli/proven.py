"""The stage that the options of `penstock prove` name, and the account that it is in."""

import os
from collections.abc import Callable, Mapping
from functools import cache
from time import sleep
from typing import Any

from penstock.cli.jobs import DEFAULT_STACK
from penstock.configuration import Configuration, find_configuration
from penstock.doctor.account_checks import Account
from penstock.doctor.recorder import AwsCalls, RecordingTransport
from penstock.http.transport import HttpTransport
from penstock.local_files import JOBS_ENV_NAMES, find_local_file, is_loopback, read_local_file
from penstock.prove.leftovers import Leftovers
from penstock.prove.proven_stage import ProvenStage, aws_client
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.stack_outputs import outputs_of, parse_stack_place

PROFILES = ("express3", "express2", "standard1")
_LOCAL_STACK = "Penstock"


def stage_of(
    given: Any, options: Mapping[str, Any], leftovers: Callable[[str], Leftovers], began_at_ms: int
) -> ProvenStage:
    """The stage that the options name. `leftovers` makes those of a URL."""
    calls = AwsCalls()
    configuration = None if given is not None else _configuration(options)
    is_local = configuration is None or is_loopback(configuration.url)
    return ProvenStage(
        transport=RecordingTransport(given if configuration is None else HttpTransport(configuration)),
        account=None if configuration is None else _account(configuration, options, calls, is_local=is_local),
        leftovers=leftovers("" if configuration is None else configuration.url),
        aws_calls=calls,
        configuration=configuration,
        is_local=is_local,
        is_own=bool(options["is_own"]),
        may_disturb=options["may_disturb"],
        role_arn=options["role_arn"],
        idle_ms=options["idle_ms"],
        began_at_ms=began_at_ms,
        wait=sleep,
    )


def _configuration(options: Mapping[str, Any]) -> Configuration:
    """The service and the caller. A stack that was named tells its URL, if no other one was given."""
    url, region, stack = options["url"], options["region"], options["stack"]
    if url is None and stack is not None:
        url = _url_of(stack, region)
    found = find_configuration(url, region)
    if found.tokens is not None:
        raise PenstockError(ErrorCode.INVALID_CONFIG, "this needs AWS keys, and you have a token: unset PENSTOCK_TOKEN")
    return found


def _url_of(stack: str, region: str | None) -> str:
    from botocore.exceptions import BotoCoreError, ClientError

    from penstock.jobs.deployed import client

    place = parse_stack_place(stack)
    try:
        [found] = client("cloudformation", region).describe_stacks(StackName=place.stack)["Stacks"]
        return outputs_of(found, place)["ApiUrl"].rstrip("/")
    except (BotoCoreError, ClientError, KeyError) as error:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"the URL of stack {stack!r} could not be read: {error}; give --url"
        ) from error


def _account(
    configuration: Configuration, options: Mapping[str, Any], calls: AwsCalls, *, is_local: bool
) -> Account | None:
    """The account of the stage; that of the emulator for a local stack, None for `penstock dev`."""
    local: dict[str, str] = {}
    if is_local:
        path = find_local_file("jobs.env")
        local = {} if path is None else read_local_file(path, JOBS_ENV_NAMES)
        if "AWS_ENDPOINT_URL" not in local:
            return None
    stack = _LOCAL_STACK if is_local else options["stack"] or os.environ.get("PENSTOCK_STACK") or DEFAULT_STACK
    return Account(client=_clients(configuration.region, local, calls), stack=stack, api_url=configuration.url)


def _clients(region: str, local: Mapping[str, str], calls: AwsCalls) -> Callable[[str], Any]:
    @cache
    def make(service: str) -> Any:
        made = aws_client(service, region, local)
        calls.watch(made)
        return made

    return make


def check_url(stage: ProvenStage) -> None:
    """Raises INVALID_CONFIG if the stack is of another URL: rows would ask two stages. Passes if it cannot be read."""
    from botocore.exceptions import BotoCoreError, ClientError

    if stage.account is None or stage.is_local:
        return
    try:
        told = stage.outputs.get("ApiUrl")
    except (BotoCoreError, ClientError, PenstockError):
        return  # each row that needs the stack says why
    if told is not None and told.rstrip("/") != stage.account.api_url.rstrip("/"):
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"the stack {stage.account.stack} has the URL {told}, and you gave {stage.account.api_url}: name the stack "
            "of that URL by --stack, and leave --url and PENSTOCK_URL out",
        )


def name_of(stage: ProvenStage, tell: Callable[[str], None]) -> str:
    """The stage's name, by which its bill is found; "" if it is not known."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return "" if stage.account is None else stage.name
    except (BotoCoreError, ClientError, KeyError, IndexError) as error:
        tell(f"the stack {stage.account and stage.account.stack} could not be read: {error}")
        return ""


def place_of(options: Mapping[str, Any]) -> dict[str, str]:
    """The place of a stage of the run's own, by which it is found again."""
    from penstock.prove.own_stage import account_of

    aws = calls_of(options["region"])
    region = aws.client("cloudformation").meta.region_name
    return {"profile": options["profile"] or PROFILES[0], "region": region, "account": account_of(aws)}


def calls_of(region: str | None) -> Any:
    """The calls of AWS with the operator's credentials."""
    from penstock.deployed.aws import aws_of  # which loads botocore

    return aws_of(region)
