"""The names of the transports, and the choice between them: the argument, then PENSTOCK_TRANSPORT, then HTTP.

`http` is built in. The module of another one is loaded by its name, when a client asks for it. So the SDK imports
neither the service nor a client of AWS for programs that call the API (docs/adr/0063).
"""

import importlib
import os
from collections.abc import Mapping
from typing import Any, Literal, get_args

from penstock.errors import NotConfiguredError

TRANSPORT = "PENSTOCK_TRANSPORT"  # an environment variable
TransportName = Literal["http", "lambda", "embedded"]
HTTP: TransportName = "http"
TRANSPORT_NAMES: tuple[TransportName, ...] = get_args(TransportName)

_MODULES: Mapping[TransportName, str] = {
    "lambda": "penstock.transports.by_lambda",
    "embedded": "penstock.transports.embedded",
}
_ASYNC_MODULES: Mapping[TransportName, str] = {**_MODULES, "lambda": "penstock.transports.async_by_lambda"}
_EXTRAS: Mapping[TransportName, str] = {"lambda": "async", "embedded": "embedded"}


def chosen_name(
    given: TransportName | None, url: str | None, *, has_token: bool = False, environ: Mapping[str, str] = os.environ
) -> TransportName:
    """The transport's name. Without `given`, a URL or a token that is an argument means HTTP.

    Raises NotConfiguredError for a name that no transport has, and for a URL or a token with another name than HTTP.
    """
    if given is None and (url is not None or has_token):
        return HTTP
    name = given or environ.get(TRANSPORT) or HTTP
    for known in TRANSPORT_NAMES:
        if name == known:
            break
    else:
        source = "transport" if given else TRANSPORT
        raise NotConfiguredError(f"{source}={name!r:.100}: use one of {', '.join(TRANSPORT_NAMES)}")
    if known != HTTP and (url is not None or has_token):
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
