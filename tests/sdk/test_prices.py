"""The price table: each line has a source, and gives the sums of AWS's own worked examples."""

import pytest

from penstock import prices
from penstock.prices import Price

TABLE = {name: value for name, value in vars(prices).items() if isinstance(value, Price)}
KIB_PER_GIB = 1_048_576


def test_every_price_has_a_page_of_its_seller_as_its_source() -> None:
    assert len(TABLE) > 30
    sellers = ("aws.amazon.com/", "warpstream.com/")
    assert [name for name, price in TABLE.items() if not price.source.startswith(sellers)] == []
    assert [name for name, price in TABLE.items() if price.usd <= 0 or price.per <= 0 or not price.unit] == []


def test_table_gives_the_sum_of_the_first_example_of_the_s3_faq() -> None:
    """10 GB-months, 1 M writes and 9 M reads of 10 KB cost 2.58 dollars (aws.amazon.com/s3/faqs, S3 Express One Zone).

    That page counts a GB as 1,048,576 KB, so the bytes here are scaled.
    """
    gb_written, gb_read = 10 * 1e6 / KIB_PER_GIB, 10 * 9e6 / KIB_PER_GIB
    parts = (
        prices.EXPRESS_GB_MONTHS.of(10),
        prices.EXPRESS_PUTS.of(1_000_000),
        prices.EXPRESS_GETS.of(9_000_000),
        prices.EXPRESS_UPLOADED_BYTES.of(gb_written * prices.GB),
        prices.EXPRESS_RETRIEVED_BYTES.of(gb_read * prices.GB),
    )
    assert [round(part, 2) for part in parts] == [1.10, 1.13, 0.27, 0.03, 0.05]
    assert sum(parts) == pytest.approx(2.58, abs=0.005)


def test_prices_of_penstocks_own_services_are_verified() -> None:
    """Figures that were not seen on their page: comparisons, a restore, kept capacity, and bytes to another region."""
    unverified = {name for name, price in TABLE.items() if not price.is_verified}
    unverified -= {"RESTORED_BYTES", "PROVISIONED_GB_SECONDS", "REGION_BYTES_OUT"}
    assert all(name.startswith(("KINESIS_", "MSK_", "WARPSTREAM_", "AGENT_")) for name in unverified)
