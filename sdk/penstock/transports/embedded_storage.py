"""The storage of a Penstock for a program that embeds the service, found in this order.

- The variables of the stage's functions (`PENSTOCK_TOPICS_TABLE` and those with it). `grant_embedded` of the construct
  sets them on a function.
- The outputs of the stack that `PENSTOCK_STACK` names: one DescribeStacks.
- `.penstock/jobs.env` of the working directory or of a parent, which `penstock local up` writes. It gives the
  emulator's address and keys, too.
"""

import os
from collections.abc import Mapping
from dataclasses import replace

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from penstock.errors import NotConfiguredError
from penstock.local_files import EMBEDDED_ENV_NAMES, find_local_file, read_local_file
from penstock_core.stack_outputs import outputs_of, parse_stack_place, storage_variables
from penstock_service.adapters.aws import Storage, storage_of_environment

_FIRST = "PENSTOCK_TOPICS_TABLE"
_STACK = "PENSTOCK_STACK"


def find_embedded_storage(region: str | None = None, *, environ: Mapping[str, str] = os.environ) -> Storage:
    """The storage, by the rules above. Raises NotConfiguredError, which says what is missing and how to give it."""
    endpoint_url = environ.get("AWS_ENDPOINT_URL")
    region = region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    if environ.get(_FIRST):
        return replace(_storage(environ, "the environment"), region=region, endpoint_url=endpoint_url)
    stack = environ.get(_STACK)
    if stack:
        variables = _variables_of_stack(stack, region, endpoint_url)
        return replace(_storage(variables, f"stack {stack}"), region=region, endpoint_url=endpoint_url)
    path = find_local_file("jobs.env")
    if path is None:
        raise NotConfiguredError(
            f"no storage to embed the service on: set {_STACK} to the deployed stack, or {_FIRST} and the variables "
            "with it, as the stage's functions have them, or start a local one with `penstock local up`"
        )
    local = read_local_file(path, EMBEDDED_ENV_NAMES)
    return replace(
        _storage(local, str(path)),
        region=local.get("AWS_REGION"),
        endpoint_url=local.get("AWS_ENDPOINT_URL"),
        access_key=local.get("AWS_ACCESS_KEY_ID"),
        secret_key=local.get("AWS_SECRET_ACCESS_KEY"),
    )


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
