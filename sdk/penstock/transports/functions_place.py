"""The functions of a Penstock for a program that invokes them, found in this order.

- `PENSTOCK_FUNCTIONS`: an ARN such as `arn:aws:lambda:us-east-1:111122223333:function:penstock`, the output
  `FunctionsArn` of the stack. `grant_direct` of the construct sets it on a function.
- The outputs of the stack that `PENSTOCK_STACK` names: one DescribeStacks.
- `.penstock/local.env` of the working directory or of a parent, which `penstock local up` writes. It gives the
  emulator's address and keys, too.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from penstock.configuration import Configuration, aws_configuration
from penstock.errors import NotConfiguredError
from penstock.local_files import LOCAL_ENV_NAMES, find_local_file, read_local_file
from penstock_core.direct.function_arn import FunctionsPlace, parse_functions_place
from penstock_core.stack_outputs import FUNCTIONS_OUTPUT, FUNCTIONS_VARIABLE, outputs_of, parse_stack_place

_STACK = "PENSTOCK_STACK"
_ENDPOINT = "AWS_ENDPOINT_URL"
_KEY, _SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionsAccess:
    """The stage, the addresses of Lambda and STS, and the caller's credentials."""

    place: FunctionsPlace
    lambda_url: str
    sts_url: str
    signer: Configuration


def find_functions(region: str | None = None, *, environ: Mapping[str, str] = os.environ) -> FunctionsAccess:
    """The functions, by the rules above. Raises NotConfiguredError, which says what is missing and how to give it."""
    text = environ.get(FUNCTIONS_VARIABLE)
    if text:
        return _access(text, FUNCTIONS_VARIABLE, environ)
    stack = environ.get(_STACK)
    if stack:
        return _access(_arn_of_stack(stack, region, environ.get(_ENDPOINT)), f"stack {stack}", environ)
    path = find_local_file("local.env")
    if path is None:
        raise NotConfiguredError(
            f"no functions to invoke: set {FUNCTIONS_VARIABLE} to the output {FUNCTIONS_OUTPUT} of the stack, or "
            f"{_STACK} to the deployed stack, or start a local one with `penstock local up`"
        )
    local = read_local_file(path, LOCAL_ENV_NAMES)
    if FUNCTIONS_VARIABLE not in local:
        raise NotConfiguredError(
            f"{path} names no functions: `penstock dev` has none, and `penstock local up` writes {FUNCTIONS_VARIABLE}"
        )
    return _access(local[FUNCTIONS_VARIABLE], str(path), local, local)


def functions_beside(
    configuration: Configuration, *, is_given: bool, environ: Mapping[str, str] = os.environ
) -> FunctionsAccess | None:
    """The functions of the service at the configuration's URL, if it takes no question to know them.

    The `local.env` that gave the URL gives them, or `PENSTOCK_FUNCTIONS` does. The variable is about the URL of the
    environment, so it counts for no URL that `is_given` as an argument. Raises NotConfiguredError for a wrong ARN.
    """
    values = environ
    if configuration.is_local:
        path = find_local_file("local.env")
        values = {} if path is None else read_local_file(path, LOCAL_ENV_NAMES)
    text = values.get(FUNCTIONS_VARIABLE)
    if not text or (is_given and not configuration.is_local):
        return None
    try:
        return access_by(configuration, values, text)
    except ValueError as error:
        raise NotConfiguredError(f"{FUNCTIONS_VARIABLE}: {error}") from error


def access_by(configuration: Configuration, values: Mapping[str, str], text: str) -> FunctionsAccess:
    """The functions of an ARN, for the caller of the configuration. `values` may name endpoints. Raises ValueError."""
    place = parse_functions_place(text)
    lambda_url, sts_url = (_url_of(service, place, values) for service in ("lambda", "sts"))
    signer = replace(configuration, url=lambda_url, region=place.region)
    return FunctionsAccess(place=place, lambda_url=lambda_url, sts_url=sts_url, signer=signer)


def _access(
    text: str, source: str, values: Mapping[str, str], keys: Mapping[str, str] = MappingProxyType({})
) -> FunctionsAccess:
    """The access. Without `keys`, botocore's chain finds the credentials."""
    try:
        place = parse_functions_place(text)
    except ValueError as error:
        raise NotConfiguredError(f"{source}: {error}") from error
    urls = {name: _url_of(name, place, values) for name in ("lambda", "sts")}
    return FunctionsAccess(
        place=place,
        lambda_url=urls["lambda"],
        sts_url=urls["sts"],
        signer=aws_configuration(urls["lambda"], place.region, keys.get(_KEY), keys.get(_SECRET)),
    )


def _url_of(service: str, place: FunctionsPlace, values: Mapping[str, str]) -> str:
    """The endpoint, as the configuration of AWS's SDKs names it."""
    own = values.get(f"{_ENDPOINT}_{service.upper()}") or values.get(_ENDPOINT)
    return (own or place.url_of(service)).rstrip("/")


def _arn_of_stack(stack: str, region: str | None, endpoint_url: str | None) -> str:
    import botocore.session  # the other two ways need none of it
    from botocore.exceptions import BotoCoreError, ClientError

    place = parse_stack_place(stack)
    try:
        client = botocore.session.Session().create_client(
            "cloudformation", region_name=region, endpoint_url=endpoint_url
        )
        [found] = client.describe_stacks(StackName=place.stack)["Stacks"]
    except (BotoCoreError, ClientError) as error:
        raise NotConfiguredError(f"the outputs of stack {stack!r:.100} could not be read: {error}") from error
    try:
        return outputs_of(found, place)[FUNCTIONS_OUTPUT]
    except KeyError as error:
        raise NotConfiguredError(
            f"stack {stack} has no output {FUNCTIONS_OUTPUT}: it takes no direct calls, so deploy it with "
            "`-c direct=on`, or use transport='http'"
        ) from error
