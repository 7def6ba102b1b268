"""The service's address and the caller's identity: URL, region and credentials, found in this order.

- URL: the argument, PENSTOCK_URL, then PENSTOCK_URL in `.penstock/local.env` of the working directory or of a parent.
  `penstock local up` writes that file, so without arguments you reach the local stack. `local_files` says when such a
  file is trusted. A URL of http:// to another machine takes PENSTOCK_ALLOW_HTTP=1.
- Region: the argument, the URL's host (`….execute-api.<region>.amazonaws.com`), AWS_REGION, botocore's chain.
- Token: the argument, PENSTOCK_TOKEN_FILE, PENSTOCK_TOKEN. With one of them, there are no credentials to find. If the
  file gave the URL, what you exported does not count.
- Credentials: botocore's chain, with refresh. If the file gave the URL, it gives keys and region too, and what you
  exported for AWS does not count. If you gave the local stack's URL yourself, the environment goes before the file.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from penstock.errors import NotConfiguredError
from penstock.local_files import FOLDER, LOCAL_ENV_NAMES, find_local_file, is_loopback, read_local_file
from penstock.tokens import TOKEN, TOKEN_FILE, BearerTokens, TokenProvider, token_of_file, token_of_variable
from penstock_core.stack_outputs import FUNCTIONS_VARIABLE

LOCAL_ENV = FOLDER / "local.env"
ALLOW_HTTP = "PENSTOCK_ALLOW_HTTP"  # an environment variable

_API_HOST = re.compile(r"[a-z0-9-]+\.execute-api\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?", re.ASCII)


class FrozenCredentials(Protocol):
    """Key, secret and session token of one moment."""

    @property
    def access_key(self) -> str: ...  # noqa: D102

    @property
    def secret_key(self) -> str: ...  # noqa: D102

    @property
    def token(self) -> str | None: ...  # noqa: D102


class Credentials(Protocol):
    """Credentials that refresh themselves, as botocore's do."""

    def get_frozen_credentials(self) -> FrozenCredentials:
        """The credentials of now. May call AWS. Raises NotConfiguredError if they cannot be refreshed."""


class _NoCredentials:
    """A caller with a token has none."""

    def get_frozen_credentials(self) -> FrozenCredentials:
        raise NotConfiguredError("a client with a token signs nothing, and receives no wake-ups")


class StaticCredentials(NamedTuple):
    """Credentials that never change."""

    access_key: str
    secret_key: str
    token: str | None = None

    def get_frozen_credentials(self) -> "StaticCredentials":
        """Themselves."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The service's address and the parts of a signature."""

    url: str
    region: str
    credentials: Credentials
    is_local: bool = False  # the URL is that of a local.env
    tokens: BearerTokens | None = None  # in place of credentials


def find_configuration(
    url: str | None = None,
    region: str | None = None,
    *,
    token: TokenProvider | None = None,
    environ: Mapping[str, str] | None = None,
) -> Configuration:
    """The service's address and the caller's identity, by the rules above.

    Raises NotConfiguredError, which says what is missing and how to give it. It reads files. If botocore's chain comes
    that far, it asks the instance metadata service.
    """
    environ = os.environ if environ is None else environ
    given = url or environ.get("PENSTOCK_URL")
    local = _local_env(is_needed=not given)
    found = given or local.get("PENSTOCK_URL")
    if not found:
        raise NotConfiguredError(
            "no service to talk to: give url=, or set PENSTOCK_URL to the API's URL (an output of `cdk deploy`), or "
            "start a local one with `penstock dev` (`penstock local up` in a checkout), here or in a parent directory"
        )
    _check_url(found, environ)
    if found != local.get("PENSTOCK_URL"):
        local = {}
    elif not given:
        environ = {}  # exported keys, tokens and an exported region are for AWS
    provider = token or _token_provider(environ)
    if provider is not None:
        return Configuration(
            url=found.rstrip("/"),
            region=region or "",
            credentials=_NoCredentials(),
            is_local=bool(local),
            tokens=BearerTokens(provider),
        )
    return Configuration(
        url=found.rstrip("/"),
        region=region or _region(found, environ, local),
        credentials=_credentials(environ, local),
        is_local=bool(local),
    )


def caller_configuration(url: str | None, region: str | None, token_file: str | None) -> Configuration:
    """The service and the caller of a command. Raises NotConfiguredError."""
    return find_configuration(url, region, token=None if token_file is None else token_of_file(token_file))


def aws_configuration(
    url: str,
    region: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> Configuration:
    """The region and the credentials to sign calls of a service of AWS at `url` with: the arguments, else the chain.

    Raises NotConfiguredError if there are none.
    """
    environ = os.environ if environ is None else environ
    given = {} if access_key is None else {"AWS_ACCESS_KEY_ID": access_key, "AWS_SECRET_ACCESS_KEY": secret_key or ""}
    return Configuration(
        url=url,
        region=region or _region(url, environ, {}),
        credentials=_credentials({} if given else environ, given),
    )


def _token_provider(environ: Mapping[str, str]) -> TokenProvider | None:
    file, has_token = environ.get(TOKEN_FILE), bool(environ.get(TOKEN))
    if file and has_token:
        raise NotConfiguredError(f"both {TOKEN_FILE} and {TOKEN} are set: set one of them")
    if file:
        return token_of_file(file)
    return token_of_variable() if has_token else None


def _region(url: str, environ: Mapping[str, str], local: Mapping[str, str]) -> str:
    host = _api_host(url)
    if host:
        return host[1]
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or local.get("AWS_REGION")
    region = region or _botocore_session().get_config_variable("region")
    if not region:
        raise NotConfiguredError("no region to sign for: give region=, or set AWS_REGION")
    return str(region)


def _credentials(environ: Mapping[str, str], local: Mapping[str, str]) -> Credentials:
    if "AWS_ACCESS_KEY_ID" in local and "AWS_ACCESS_KEY_ID" not in environ:
        return StaticCredentials(local["AWS_ACCESS_KEY_ID"], local.get("AWS_SECRET_ACCESS_KEY", ""))
    from botocore.exceptions import BotoCoreError

    try:
        credentials = _botocore_session().get_credentials()
    except BotoCoreError as error:
        raise NotConfiguredError(f"the AWS credentials could not be loaded: {error}") from error
    if credentials is None:
        raise NotConfiguredError(
            "no AWS credentials to sign with: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, choose a profile with "
            "AWS_PROFILE, or run where a role is attached"
        )
    return _ChainCredentials(credentials, BotoCoreError)


@dataclass(frozen=True, slots=True)
class _ChainCredentials:
    """Credentials of botocore's chain, whose failure to refresh is an error of ours."""

    inner: Any
    failure: type[Exception]

    def get_frozen_credentials(self) -> FrozenCredentials:
        try:
            frozen: FrozenCredentials = self.inner.get_frozen_credentials()
        except self.failure as error:
            raise NotConfiguredError(f"the AWS credentials could not be refreshed: {error}") from error
        return frozen


def _botocore_session() -> Any:
    """A session of botocore, which takes 0.1 s to import: the local services need none."""
    import botocore.session

    return botocore.session.Session()


def may_have_functions(configuration: Configuration) -> bool:
    """True if the caller may be able to invoke functions: with AWS credentials, of a service on AWS or its emulator."""
    return configuration.tokens is None and (configuration.is_local or configuration.url.startswith("https://"))


def has_functions_alone(url: str | None, environ: Mapping[str, str] | None = None) -> bool:
    """True if only the environment says where the service is, and it names functions and no URL.

    That is so where a private network has no way to the API. A token and the `local.env` of a local service go before
    it: the functions would take the one for nothing, and are of another service than the other.
    """
    environ = os.environ if environ is None else environ
    if url or any(environ.get(name) for name in ("PENSTOCK_URL", TOKEN, TOKEN_FILE)):
        return False
    return bool(environ.get(FUNCTIONS_VARIABLE)) and find_local_file(LOCAL_ENV.name) is None


def is_api_of_aws(url: str) -> bool:
    """True for the address of an API itself, which never leads to another API, as a domain of yours may."""
    return _api_host(url) is not None


def _api_host(url: str) -> re.Match[str] | None:
    try:
        return _API_HOST.fullmatch(urlsplit(url).hostname or "")
    except ValueError:  # of a URL with half an IPv6 address
        return None


def check_secure(url: str, environ: Mapping[str, str]) -> None:
    """Raises NotConfiguredError for a URL of http:// to another machine, unless PENSTOCK_ALLOW_HTTP is 1."""
    if not url.startswith("https://") and not is_loopback(url) and environ.get(ALLOW_HTTP) != "1":
        raise NotConfiguredError(
            f"url {url!r:.100}: anybody on the way could read your records and your session token, so use https://; "
            f"in a network that you trust, set {ALLOW_HTTP}=1"
        )


def _check_url(url: str, environ: Mapping[str, str]) -> None:
    if not url.startswith(("http://", "https://")):
        raise NotConfiguredError(f"url {url!r:.100}: it must begin with https:// or http://")
    if "@" in urlsplit(url).netloc:
        raise NotConfiguredError("the url has a user name or a password: Penstock takes AWS credentials only")
    check_secure(url, environ)


def _local_env(*, is_needed: bool) -> dict[str, str]:
    """The values of the nearest `local.env`. One that cannot be trusted raises NotConfiguredError if it is needed."""
    path = find_local_file(LOCAL_ENV.name)
    if path is None:
        return {}
    try:
        return read_local_file(path, LOCAL_ENV_NAMES)
    except NotConfiguredError:
        if is_needed:
            raise
        return {}
