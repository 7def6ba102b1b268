"""The counts of the SDK are those that were captured, and lie on lines between them."""

import math

import pytest

from penstock import prices
from penstock.cost.counted import PROFILES, counted
from penstock.http.named_transport import TransportName
from penstock_core.limits import BATCH_BYTES_MAX, KIB, MIB

ZONES = {"express3": 3, "express2": 2, "standard1": 0}


@pytest.mark.parametrize("profile", PROFILES)
def test_append_puts_once_into_each_zone(profile: str) -> None:
    counts = counted(profile).append(KIB)
    assert counts.get("EXPRESS_PUTS", 0) == ZONES[profile] == counted(profile).zones
    assert counts.get("S3_PUTS", 0) == (1 if profile == "standard1" else 0)


@pytest.mark.parametrize("size", [KIB, 100 * KIB, 600 * KIB, BATCH_BYTES_MAX])
def test_api_counts_each_512_kib_that_a_request_begins(size: int) -> None:
    """The rule of the model is that of the capture, at each captured size and between them."""
    found = counted("express3").found["append"]
    assert counted("express3").append(size)["API_REQUESTS"] == math.ceil((size + KIB) / prices.API_REQUEST_BYTES)
    for captured, counts in found.items():
        assert counted("express3").append(int(captured))["API_REQUESTS"] == counts["API_REQUESTS"]


def test_counts_between_two_captured_sizes_lie_on_a_line() -> None:
    counts = counted("express3")
    low, middle, high = (counts.append(size)["EXPRESS_UPLOADED_BYTES"] for size in (64 * KIB, 160 * KIB, 256 * KIB))
    assert middle == pytest.approx((low + high) / 2)
    assert high == pytest.approx(3 * 256 * KIB, rel=0.01)


def test_captured_many_are_given_back_for_many_partitions_and_segments() -> None:
    counts = counted("standard1")
    many = counts.found["append_to_many"]
    assert counts.append(6 * KIB, 6)["WRITE_UNITS"] == pytest.approx(many["WRITE_UNITS"], rel=0.01)
    assert counts.fetch(4 * KIB, segments=4)["S3_GETS"] == pytest.approx(
        counts.found["fetch_of_many_segments"]["S3_GETS"]
    )
    assert counts.fetch(KIB, partitions=6)["READ_UNITS"] == pytest.approx(
        counts.found["fetch_of_many_partitions"]["READ_UNITS"]
    )


def test_profile_that_does_not_exist_is_refused() -> None:
    with pytest.raises(LookupError, match="express3, express2, standard1"):
        counted("express9")


def test_bytes_move_to_the_archive_only_where_there_are_zones() -> None:
    assert counted("standard1").tier(MIB) == {}
    assert counted("express2").tier(KIB)["EXPRESS_GETS"] > 0


@pytest.mark.parametrize("profile", PROFILES)
def test_call_by_lambda_lacks_the_gateway_and_its_log_line(profile: str) -> None:
    by_http, by_lambda = counted(profile).append(MIB), counted(profile, "lambda").append(MIB)
    assert counted(profile, "auto").append(MIB) == by_lambda
    gone = {name for name, count in by_http.items() if by_lambda.get(name) != count}
    assert gone == {"API_REQUESTS", "LOGGED_BYTES"}
    assert "API_REQUESTS" not in by_lambda
    assert by_lambda["LOGGED_BYTES"] == by_http["LOGGED_BYTES"] - 450


@pytest.mark.parametrize("profile", PROFILES)
def test_embedded_call_costs_its_storage_only(profile: str) -> None:
    by_http, embedded = counted(profile).append(MIB), counted(profile, "embedded").append(MIB)
    storage = {name for name in by_http if name.startswith(("WRITE", "READ", "S3", "EXPRESS", "INDEX", "WAKE"))}
    assert embedded == {name: by_http[name] for name in storage}


@pytest.mark.parametrize("transport", ["lambda", "embedded"])
def test_every_kind_of_call_lacks_what_the_transport_does_not_pass(transport: TransportName) -> None:
    counts = counted("standard1", transport)
    for found in (counts.fetch(MIB), counts.arming_fetch(3, 1), counts.commit(3), counts.idle_member_hour()):
        assert "API_REQUESTS" not in found
        assert ("LAMBDA_REQUESTS" in found) == (transport == "lambda")
        assert found.get("READ_UNITS", 0) + found.get("WRITE_UNITS", 0) > 0


@pytest.mark.parametrize("transport", ["http", "lambda", "embedded"])
def test_another_member_of_a_group_makes_none_of_its_checks(transport: TransportName) -> None:
    counts = counted("express3", transport)
    one, another = counts.idle_member_hour(), counts.idle_hour_of_another()
    assert another["WRITE_UNITS"] < one["WRITE_UNITS"]
    assert counts.heartbeat_of_another()["WRITE_UNITS"] == 1
