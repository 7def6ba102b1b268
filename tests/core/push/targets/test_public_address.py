"""Addresses that an HTTPS endpoint may have."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode
from penstock_core.push.targets.public_address import (
    check_public,
    is_within,
    parse_address,
    parse_networks,
    special_kind,
)
from tests.support.refusals import refused

LOCAL = parse_networks("127.0.0.0/8, ::1/128")


@pytest.mark.parametrize(
    "text",
    [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "93.184.216.34",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2001:200::1",
        "2001:4860:4860::8888",
        "2003::1",
        "2600:1f18::1",
        "2606:2800:220:1:248:1893:25c8:1946",
    ],
)
def test_public_address_is_accepted(text: str) -> None:
    check_public("example.org", [ip_address(text)])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("0.0.0.0", "unspecified"),
        ("0.255.255.255", "unspecified"),
        ("10.0.0.0", "private"),
        ("10.255.255.255", "private"),
        ("100.64.0.0", "private"),
        ("100.127.255.255", "private"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.255", "loopback"),
        ("169.254.169.254", "link-local"),
        ("169.254.170.2", "link-local"),
        ("172.16.0.0", "private"),
        ("172.31.255.255", "private"),
        ("192.0.0.1", "reserved"),
        ("192.0.2.1", "documentation"),
        ("192.88.99.1", "6to4"),
        ("192.168.0.1", "private"),
        ("198.18.0.1", "benchmarks"),
        ("198.19.255.255", "benchmarks"),
        ("198.51.100.1", "documentation"),
        ("203.0.113.1", "documentation"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::7f00:1", "reserved"),
        ("::ffff:127.0.0.1", "an IPv4 address in IPv6"),
        ("::ffff:93.184.216.34", "an IPv4 address in IPv6"),
        ("::ffff:0:127.0.0.1", "reserved"),
        ("64:ff9b::a9fe:a9fe", "NAT64"),
        ("64:ff9b:1::a00:1", "NAT64"),
        ("100::1", "reserved"),
        ("2001::1", "reserved"),
        ("2001:10::1", "reserved"),
        ("2001:db8::1", "documentation"),
        ("2002:7f00:1::", "6to4"),
        ("2002:a9fe:a9fe::1", "6to4"),
        ("3fff::1", "documentation"),
        ("4000::1", "reserved"),
        ("5f00::1", "reserved"),
        ("fc00::1", "private"),
        ("fd00:ec2::254", "private"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("2600::1%eth0", "reserved"),
        ("fec0::1", "private"),
        ("ff02::1", "multicast"),
        ("ff0e::1", "multicast"),
    ],
)
def test_address_that_is_not_public_is_refused_by_its_kind(text: str, kind: str) -> None:
    address = ip_address(text)
    error = refused(ErrorCode.INVALID_CONFIG, lambda: check_public("example.org", [address]))
    assert f"'example.org' has the address {address}, which is " in error.message
    assert kind in error.message


def test_one_private_address_among_public_ones_is_refused() -> None:
    addresses = [ip_address("1.1.1.1"), ip_address("10.0.0.5"), ip_address("8.8.8.8")]
    assert "10.0.0.5" in refused(ErrorCode.INVALID_CONFIG, lambda: check_public("h", addresses)).message


def test_allowed_networks_let_their_addresses_through() -> None:
    check_public("localhost", [ip_address("127.0.0.1"), ip_address("::1"), ip_address("1.1.1.1")], LOCAL)


@pytest.mark.parametrize("text", ["10.0.0.1", "169.254.169.254", "::", "::ffff:127.0.0.1"])
def test_allowed_networks_let_no_other_address_through(text: str) -> None:
    refused(ErrorCode.INVALID_CONFIG, lambda: check_public("h", [ip_address(text)], LOCAL))


@given(st.integers(0, 2**32 - 1))
def test_no_ipv4_address_is_public_in_a_form_of_ipv6(number: int) -> None:
    for prefix in (0, 0xFFFF << 32, 0x64FF9B << 96, (0x64FF9B << 96) + (1 << 80)):
        assert special_kind(IPv6Address(prefix + number)) is not None
    assert special_kind(IPv6Address((0x2002 << 112) + (number << 80))) is not None


@given(st.ip_addresses())
def test_an_address_that_python_knows_as_special_is_never_public(address: IPv4Address | IPv6Address) -> None:
    if special_kind(address) is None:
        assert (address.is_global, address.is_multicast, address.is_reserved) == (True, False, False)


@pytest.mark.parametrize("text", ["", " ", ","])
def test_no_networks_are_no_networks(text: str) -> None:
    assert parse_networks(text) == ()
    assert not is_within(ip_address("127.0.0.1"), parse_networks(text))


@pytest.mark.parametrize("text", ["127.0.0.1/8", "local", "127.0.0.0/33"])
def test_bad_networks_are_refused(text: str) -> None:
    assert repr(text) in refused(ErrorCode.INVALID_CONFIG, lambda: parse_networks(text)).message


def test_bad_address_is_refused() -> None:
    assert parse_address("fe80::1%2") == ip_address("fe80::1%2")
    assert "'here'" in refused(ErrorCode.INVALID_CONFIG, lambda: parse_address("here")).message
