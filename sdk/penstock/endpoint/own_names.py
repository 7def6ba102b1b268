"""The names by which a server of this machine may be asked."""

from penstock.local_files import is_loopback

REFUSAL = "this is another host"


def is_foreign(address: str, host: str) -> bool:
    """True for a server of this machine alone that a request reaches by another name: an attack by DNS.

    `address` is that of the listening socket, `host` the request's Host. A server of other machines has any name.
    """
    return is_loopback(f"http://[{address}]" if ":" in address else f"http://{address}") and not is_loopback(
        f"http://{host}"
    )
