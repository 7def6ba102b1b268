"""The addresses that an HTTPS endpoint may have: public ones only. Pure.

A subscription makes the service send requests to an address that its caller chose. A private address would lead the
caller into networks that only the service reaches: its own machine, its VPC, or the metadata of its instance at
169.254.169.254 and fd00:ec2::254.

The lists are IANA's registries of special-purpose addresses (RFC 6890; as of 2025). `ipaddress.is_global` does not do:
it takes 64:ff9b::/96, 6to4, multicast and fec0::/10 for global, and its answers differ between releases of Python.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from penstock_core.errors import ErrorCode, PenstockError, shown

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_PUBLIC_V6 = IPv6Network("2000::/3")  # global unicast: all that IANA has given out
_SPECIAL: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(text), kind)
    for text, kind in {
        "0.0.0.0/8": "unspecified",
        "10.0.0.0/8": "private",
        "100.64.0.0/10": "private (a provider's NAT)",
        "127.0.0.0/8": "loopback",
        "169.254.0.0/16": "link-local",
        "172.16.0.0/12": "private",
        "192.0.0.0/24": "reserved",
        "192.0.2.0/24": "reserved for documentation",
        "192.31.196.0/24": "reserved",
        "192.52.193.0/24": "reserved",
        "192.88.99.0/24": "reserved for 6to4",
        "192.168.0.0/16": "private",
        "192.175.48.0/24": "reserved",
        "198.18.0.0/15": "reserved for benchmarks",
        "198.51.100.0/24": "reserved for documentation",
        "203.0.113.0/24": "reserved for documentation",
        "224.0.0.0/4": "multicast",
        "240.0.0.0/4": "reserved",
        "::/128": "unspecified",
        "::1/128": "loopback",
        "::ffff:0:0/96": "an IPv4 address in IPv6",
        "64:ff9b::/96": "an IPv4 address in IPv6 (NAT64)",
        "64:ff9b:1::/48": "an IPv4 address in IPv6 (NAT64)",
        "2001::/23": "reserved",  # Teredo, ORCHID, benchmarks
        "2001:db8::/32": "reserved for documentation",
        "2002::/16": "an IPv4 address in IPv6 (6to4)",
        "2620:4f:8000::/48": "reserved",
        "3fff::/20": "reserved for documentation",
        "fc00::/7": "private",
        "fe80::/10": "link-local",
        "fec0::/10": "private",
        "ff00::/8": "multicast",
    }.items()
)


def check_public(host: str, addresses: Iterable[Address], allowed: Iterable[Network] = ()) -> None:
    """Raises INVALID_CONFIG if one of the host's addresses is not public and lies in none of the `allowed` networks.

    Check all addresses that a name has, and connect to one of those that you have checked.
    """
    networks = tuple(allowed)
    for address in addresses:
        kind = special_kind(address)
        if kind is not None and not is_within(address, networks):
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"{shown(host)} has the address {address}, which is {kind}: give a host with public addresses only",
            )


def special_kind(address: Address) -> str | None:
    """The word for what the address is instead of public, or None if it is public."""
    for network, kind in _SPECIAL:
        if address in network:
            return kind
    if address.version == 6 and (address.scope_id is not None or address not in _PUBLIC_V6):
        return "reserved"
    return None


def is_within(address: Address, networks: Iterable[Network]) -> bool:
    """True if the address lies in one of the networks."""
    return any(address in network for network in networks)


def parse_networks(text: str) -> tuple[Network, ...]:
    """The networks of a text such as `127.0.0.0/8,::1/128`; none for an empty one. Raises INVALID_CONFIG."""
    try:
        return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"networks {shown(text)}: {error}") from error


def parse_address(text: str) -> Address:
    """The address, as the resolver writes it. Raises INVALID_CONFIG."""
    try:
        return ip_address(text)
    except ValueError as error:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"address {shown(text)}: {error}") from error
