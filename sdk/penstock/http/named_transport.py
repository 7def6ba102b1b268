"""The names of the transports, and the choice between them: the argument, then PENSTOCK_TRANSPORT, then `auto`.

`http` is built in. The module of another one is loaded by its name, when a client asks for it. So the SDK imports
neither the service nor a client of AWS for programs that call the API (docs/adr/0063). `auto` is HTTP where nothing
else can be: for a caller with tokens, and for a service that is not on AWS.
"""

import importlib
import os
from collections.abc import Mapping
from typing import Any, Literal, get_args

from penstock.errors import NotConfiguredError

TRANSPORT = "PENSTOCK_TRANSPORT"  # an environment variable
TransportName = Literal["auto", "http", "lambda", "embedded"]
AUTO: TransportName = "auto"
HTTP: TransportName = "http"
LAMBDA: TransportName = "lambda"
TRANSPORT_NAMES: tuple[TransportName, ...] = get_args(TransportName)
CARRIER_NAMES: tuple[TransportName, ...] = TRANSPORT_NAMES[1:]  # `auto` has no way of its own

_MODULES: Mapping[TransportName, str] = {
    "auto": "penstock.transports.by_auto",
    "lambda": "penstock.transports.by_lambda",
    "embedded": "penstock.transports.embedded",
}
_ASYNC_MODULES: Mapping[TransportName, str] = {
    **_MODULES,
    "auto": "penstock.transports.async_by_auto",
    "lambda": "penstock.transports.async_by_lambda",
}
_EXTRAS: Mapping[TransportName, str] = {"auto": "async", "lambda": "async", "embedded": "embedded"}


def chosen_name(
    given: TransportName | None, url: str | None, *, has_token: bool = False, environ: Mapping[str, str] = os.environ
) -> TransportName:
    """The transport's name. Without `given`, a token that is an argument means `http`, and a URL `http` or `auto`.

    Raises NotConfiguredError for a name that no transport has, and for a URL or a token with one that takes none.
    """
    if given is None and has_token:
        return HTTP
    name = given or environ.get(TRANSPORT) or AUTO
    if given is None and url is not None and name != HTTP:
        return AUTO
    for known in TRANSPORT_NAMES:
        if name == known:
            break
    else:
        source = "transport" if given else TRANSPORT
        raise NotConfiguredError(f"{source}={name!r:.100}: use one of {', '.join(TRANSPORT_NAMES)}")
    if known not in (HTTP, AUTO) and (url is not None or has_token):
        raise NotConfiguredError(
            f"transport={known!r} beside a URL or a token: both are for {HTTP!r}, so leave one of them out"
        )
    return known


def module_of(name: TransportName, *, is_async: bool = False) -> Any:
    """The module that opens the transport: by `open_transport(region)`, and with `is_async` by `open_async_transport`.

    Raises NotConfiguredError if a package is missing that an extra of Penstock brings.
    """
    try:
        return importlib.import_module((_ASYNC_MODULES if is_async else _MODULES)[name])
    except ModuleNotFoundError as error:
        raise NotConfiguredError(
            f"{error}: transport={name!r} needs `pip install 'penstock[{_EXTRAS[name]}]'`"
        ) from error
