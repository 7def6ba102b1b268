"""Listening sockets, the connections that fit below the limit of open files, and the names of this machine.

It loads no server: the command line imports it for every command.
"""

import logging
import socket

from penstock.local_files import is_loopback
from penstock_core.limits import BACKLOG_MAX, RESERVED_FILES

try:
    import resource
except ModuleNotFoundError:  # Windows has no such limit
    resource = None  # type: ignore[assignment]

logger = logging.getLogger("penstock")
REFUSAL = "this is another host"


def listen(port: int, host: str = "127.0.0.1") -> socket.socket:
    """A listening socket, at a free port if `port` is 0. Raises OSError if it cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG_MAX)


def fitting_connections(wanted: int) -> int:
    """Return the number of the wanted connections that fit. It raises the limit of open files if it needs to.

    `RESERVED_FILES` stay for connections that are being refused, for calls of the service, and for files.
    """
    if resource is None:
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    needed = wanted + RESERVED_FILES
    possible = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft < possible:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
        soft = possible
    fitting = max(1, min(wanted, soft - RESERVED_FILES))
    if fitting < wanted:
        logger.warning("%d connections at once, not %d: this process may open %d files", fitting, wanted, soft)
    return fitting


def is_foreign(address: str, host: str) -> bool:
    """True for a server of this machine alone that a request reaches by another name: an attack by DNS.

    `address` is that of the listening socket, `host` the request's Host. A server of other machines has any name.
    """
    return is_loopback(f"http://[{address}]" if ":" in address else f"http://{address}") and not is_loopback(
        f"http://{host}"
    )
