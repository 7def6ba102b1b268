"""The storage of a Penstock for a program that embeds the service, and what its stage decides without access rules.

They are found in this order:

- The variables of the stage's functions (`PENSTOCK_TOPICS_TABLE` and those with it).
- The outputs of the stack that `PENSTOCK_STACK` names: one DescribeStacks.
- `.penstock/jobs.env` of the working directory or of a parent, which `penstock local up` writes. It gives the
  emulator's address and keys, too.

`PENSTOCK_ACL_DEFAULT` and `PENSTOCK_SUPER_PRINCIPALS` of the environment go before those of the other two.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from penstock.errors import NotConfiguredError
from penstock.local_files import EMBEDDED_ENV_NAMES, find_local_file, read_local_file
from penstock_core.acls.tokens import DEFAULT_VARIABLE, SUPER_VARIABLE, AclSettings, acl_settings_of
from penstock_core.errors import PenstockError
from penstock_core.stack_outputs import outputs_of, parse_stack_place, storage_variables
from penstock_service.adapters.aws import Storage, storage_of_environment

_FIRST = "PENSTOCK_TOPICS_TABLE"
_STACK = "PENSTOCK_STACK"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedStage:
    """A stage's storage, and what it decides about rights that no access rule is about."""

    storage: Storage
    acls: AclSettings


def find_embedded_stage(region: str | None = None, *, environ: Mapping[str, str] = os.environ) -> EmbeddedStage:
    """The stage, by the rules above. Raises NotConfiguredError, which says what is missing and how to give it."""
    endpoint_url = environ.get("AWS_ENDPOINT_URL")
    region = region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    if environ.get(_FIRST):
        storage = replace(_storage(environ, "the environment"), region=region, endpoint_url=endpoint_url)
        return EmbeddedStage(storage=storage, acls=_acls(environ, {}))
    stack = environ.get(_STACK)
    if stack:
        variables = _variables_of_stack(stack, region, endpoint_url)
        storage = replace(_storage(variables, f"stack {stack}"), region=region, endpoint_url=endpoint_url)
        return EmbeddedStage(storage=storage, acls=_acls(environ, variables))
    path = find_local_file("jobs.env")
    if path is None:
        raise NotConfiguredError(
            f"no storage to embed the service on: set {_STACK} to the deployed stack, or {_FIRST} and the variables "
            "with it, as the stage's functions have them, or start a local one with `penstock local up`"
        )
    local = read_local_file(path, EMBEDDED_ENV_NAMES)
    storage = replace(
        _storage(local, str(path)),
        region=local.get("AWS_REGION"),
        endpoint_url=local.get("AWS_ENDPOINT_URL"),
        access_key=local.get("AWS_ACCESS_KEY_ID"),
        secret_key=local.get("AWS_SECRET_ACCESS_KEY"),
    )
    return EmbeddedStage(storage=storage, acls=_acls(environ, local))


def storage_of_outputs(outputs: Mapping[str, str], region: str | None) -> Storage:
    """The storage of a stack with these outputs. Raises NotConfiguredError, which says what is missing."""
    storage = _storage(storage_variables(outputs), "the stack")
    region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return replace(storage, region=region, endpoint_url=os.environ.get("AWS_ENDPOINT_URL"))


def _acls(environ: Mapping[str, str], found: Mapping[str, str]) -> AclSettings:
    names = (DEFAULT_VARIABLE, SUPER_VARIABLE)
    try:
        return acl_settings_of({name: each[name] for each in (found, environ) for name in names if name in each})
    except (ValueError, PenstockError) as error:
        raise NotConfiguredError(f"what the stage decides without access rules is not known: {error}") from error


def _storage(variables: Mapping[str, str], source: str) -> Storage:
    try:
        return storage_of_environment(variables)
    except KeyError as error:
        raise NotConfiguredError(f"{source} names no {error.args[0]}: the stage's functions have it") from error
    except ValueError as error:
        raise NotConfiguredError(f"{source}: {error}") from error


def _variables_of_stack(stack: str, region: str | None, endpoint_url: str | None) -> dict[str, str]:
    place = parse_stack_place(stack)
    try:
        client = boto3.client("cloudformation", region_name=region, endpoint_url=endpoint_url)
        [found] = client.describe_stacks(StackName=place.stack)["Stacks"]
    except (BotoCoreError, ClientError) as error:
        raise NotConfiguredError(f"the outputs of stack {stack!r:.100} could not be read: {error}") from error
    return storage_variables(outputs_of(found, place))
