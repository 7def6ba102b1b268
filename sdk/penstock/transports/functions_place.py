"""The functions of a Penstock for a program that invokes them, found in this order.

- `PENSTOCK_FUNCTIONS`: an ARN such as `arn:aws:lambda:us-east-1:111122223333:function:penstock`, the output
  `FunctionsArn` of the stack. `grant_direct` of the construct sets it on a function.
- The outputs of the stack that `PENSTOCK_STACK` names: one DescribeStacks.
- `.penstock/local.env` of the working directory or of a parent, which `penstock local up` writes. It gives the
  emulator's address and keys, too.

AWS_ENDPOINT_URL of the environment often names a store or an emulator of other services. So it counts for a local stage
alone: records and proofs go to AWS, or where AWS_ENDPOINT_URL_LAMBDA and AWS_ENDPOINT_URL_STS say.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from penstock.configuration import Configuration, aws_configuration, check_secure
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


def functions_of_local_env(configuration: Configuration) -> FunctionsAccess | None:
    """The functions that the `local.env` names which gave the configuration's URL. Raises NotConfiguredError."""
    path = find_local_file("local.env") if configuration.is_local else None
    values = {} if path is None else read_local_file(path, LOCAL_ENV_NAMES)
    text = values.get(FUNCTIONS_VARIABLE)
    if not text:
        return None
    try:
        return access_by(configuration, values, text)
    except ValueError as error:
        raise NotConfiguredError(f"{path}: {FUNCTIONS_VARIABLE}: {error}") from error


def hinted_functions(configuration: Configuration, environ: Mapping[str, str] = os.environ) -> str | None:
    """The ARN that `PENSTOCK_FUNCTIONS` names next to a URL, None without it.

    It may be of another stage than the URL. So the service at the URL has to tell its functions, and the client asks
    before its first call. Raises NotConfiguredError for a wrong ARN.
    """
    text = environ.get(FUNCTIONS_VARIABLE)
    if configuration.is_local or not text:
        return None
    return _place(text, FUNCTIONS_VARIABLE).arn


def access_by(configuration: Configuration, values: Mapping[str, str], text: str) -> FunctionsAccess:
    """The functions of an ARN, for the caller of the configuration. `values` may name endpoints.

    Raises ValueError for no ARN, for functions of another region than the service's API, and for an endpoint that is
    not to be trusted. An API and its functions are of one region, so a server of another one tells what is not its own.
    """
    place = parse_functions_place(text)
    if not configuration.is_local and place.region != configuration.region:
        raise ValueError(f"{text!r:.200} is of another region than the API, which is in {configuration.region}")
    try:
        lambda_url, sts_url = _urls_of(place, values, is_local=configuration.is_local)
    except NotConfiguredError as error:
        raise ValueError(str(error)) from error
    signer = replace(configuration, url=lambda_url, region=place.region)
    return FunctionsAccess(place=place, lambda_url=lambda_url, sts_url=sts_url, signer=signer)


def _place(text: str, source: str) -> FunctionsPlace:
    try:
        return parse_functions_place(text)
    except ValueError as error:
        raise NotConfiguredError(f"{source}: {error}") from error


def _access(
    text: str, source: str, values: Mapping[str, str], keys: Mapping[str, str] = MappingProxyType({})
) -> FunctionsAccess:
    """The access. Without `keys`, botocore's chain finds the credentials."""
    place = _place(text, source)
    lambda_url, sts_url = _urls_of(place, values, is_local=bool(keys))
    return FunctionsAccess(
        place=place,
        lambda_url=lambda_url,
        sts_url=sts_url,
        signer=aws_configuration(lambda_url, place.region, keys.get(_KEY), keys.get(_SECRET)),
    )


def _urls_of(place: FunctionsPlace, values: Mapping[str, str], *, is_local: bool) -> tuple[str, str]:
    """The endpoints of Lambda and STS. Raises NotConfiguredError for one that anybody on the way could read."""
    found = []
    for service in ("lambda", "sts"):
        own = values.get(f"{_ENDPOINT}_{service.upper()}") or (values.get(_ENDPOINT) if is_local else None)
        url = (own or place.url_of(service)).rstrip("/")
        check_secure(url, values)
        found.append(url)
    return found[0], found[1]


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
