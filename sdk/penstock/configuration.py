"""Where the service is and who calls it: URL, region and credentials, found in this order.

- URL: the argument, PENSTOCK_URL, then PENSTOCK_URL in `.penstock/local.env` of the working directory or of a parent
  (`penstock local up` writes it), so that with no arguments the local stack is found.
- Region: the argument, the URL's host (`….execute-api.<region>.amazonaws.com`), AWS_REGION, botocore's chain.
- Credentials: botocore's chain, with refresh. Where the file gave the URL, it gives keys and region too, whatever is
  exported for AWS; where the local stack's URL was given otherwise, the environment goes before the file.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.session
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError

from penstock.errors import NotConfiguredError

LOCAL_ENV = Path(".penstock") / "local.env"

_API_HOST = re.compile(r"^https?://[^/]*\.execute-api\.([a-z0-9-]+)\.amazonaws\.com", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What a signed request needs. `credentials` is botocore's object, which refreshes itself."""

    url: str
    region: str
    credentials: Any


def find_configuration(
    url: str | None = None, region: str | None = None, *, environ: Mapping[str, str] | None = None
) -> Configuration:
    """The service's address and the caller's identity, by the rules above.

    Raises NotConfiguredError, which says what is missing and how to give it. Reads files, and, where botocore's
    chain comes that far, asks the instance metadata service.
    """
    environ = os.environ if environ is None else environ
    local = _local_env()
    given = url or environ.get("PENSTOCK_URL")
    found = given or local.get("PENSTOCK_URL")
    if not found:
        raise NotConfiguredError(
            "no service to talk to: give url=, or set PENSTOCK_URL to the API's URL (an output of `cdk deploy`), or "
            "start a local one with `penstock local up`, in this directory or a parent of it"
        )
    if not found.startswith(("http://", "https://")):
        raise NotConfiguredError(f"url {found!r}: it must begin with https:// or http://")
    if found != local.get("PENSTOCK_URL"):
        local = {}
    elif not given:
        environ = {}  # keys and region that somebody has exported are for AWS
    session = botocore.session.Session()
    return Configuration(
        url=found.rstrip("/"),
        region=region or _region(found, environ, local, session),
        credentials=_credentials(environ, local, session),
    )


def _region(url: str, environ: Mapping[str, str], local: Mapping[str, str], session: Any) -> str:
    host = _API_HOST.match(url)
    if host:
        return host[1]
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or local.get("AWS_REGION")
    region = region or session.get_config_variable("region")
    if not region:
        raise NotConfiguredError("no region to sign for: give region=, or set AWS_REGION")
    return str(region)


def _credentials(environ: Mapping[str, str], local: Mapping[str, str], session: Any) -> Any:
    if "AWS_ACCESS_KEY_ID" in local and "AWS_ACCESS_KEY_ID" not in environ:
        return Credentials(local["AWS_ACCESS_KEY_ID"], local.get("AWS_SECRET_ACCESS_KEY", ""))
    try:
        credentials = session.get_credentials()
    except BotoCoreError as error:
        raise NotConfiguredError(f"the AWS credentials could not be loaded: {error}") from error
    if credentials is None:
        raise NotConfiguredError(
            "no AWS credentials to sign with: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, choose a profile with "
            "AWS_PROFILE, or run where a role is attached"
        )
    return credentials


def _local_env() -> dict[str, str]:
    here = Path.cwd()
    for folder in (here, *here.parents):
        path = folder / LOCAL_ENV
        if path.is_file():
            lines = (line.strip().removeprefix("export ") for line in path.read_text().splitlines())
            pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
            return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}
    return {}
