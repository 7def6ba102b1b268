"""The price of a small append as an item, against its budget and what the page shows."""

import pytest

from bench.bill.deployment import billed_profile
from bench.bill.requests import PROFILES
from bench.inline_appends import bill_life
from bench.report.result import load_results
from penstock_core.log.ref import Tier

SMALL_APPEND_USD_MAX = 2.5  # of a million, embedded, with its deletion: the bar for small appends
SMALL_APPEND_WITH_TTL_USD_MAX = 1.8  # embedded, with its days to the TTL
RECORD_BYTES = 500


@pytest.mark.slow
def test_small_append_as_an_item_costs_at_most_its_budget() -> None:
    life = bill_life(billed_profile("express3"), RECORD_BYTES, Tier.INLINE, appends=32)
    assert life.appended + life.removed <= SMALL_APPEND_USD_MAX
    written = load_results()["inline_appends"]
    row = {"record_bytes": RECORD_BYTES}
    assert life.appended == pytest.approx(written.find("an append as an item, a million", row, "append_usd"), rel=0.02)
    assert life.item_bytes == written.find("an append as an item, a million", row, "item_bytes")


@pytest.mark.slow
def test_small_append_with_a_ttl_costs_less_to_its_end_than_the_append_of_one_without() -> None:
    life = bill_life(billed_profile("express3"), RECORD_BYTES, Tier.EXPIRING, appends=32)
    assert (life.moved, life.removed) == (0.0, 0.0)
    assert life.embedded <= SMALL_APPEND_WITH_TTL_USD_MAX
    assert life.direct == pytest.approx(life.embedded + life.by_lambda)


def test_small_append_as_an_item_costs_less_than_one_to_zones_to_the_end_of_its_bytes() -> None:
    tables = load_results()["inline_appends"].tables
    [item] = [row for row in tables["an append as an item, a million"] if row["record_bytes"] == RECORD_BYTES]
    zonal = [row for row in tables["an append to zones, a million"] if row["record_bytes"] == RECORD_BYTES]
    assert len(zonal) == len(PROFILES)
    assert all(float(str(item["embedded_sum_usd"])) < float(str(row["embedded_sum_usd"])) for row in zonal)
