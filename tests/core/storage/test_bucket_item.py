"""The item of a bucket: layout, and the writes that change it. tests/contract holds what the writes do."""

from penstock_core.quotas.bucket import Bucket
from penstock_core.storage.quota_items import bucket_charge, bucket_key, bucket_put, parse_bucket

BUCKET = Bucket(rate=1_000, since_ms=5_000, charged=7)


def test_put_has_its_golden_layout_and_gives_the_bucket_back() -> None:
    item = bucket_put(bucket_key("topic", "t1", "fetch_bytes_per_s"), None, BUCKET).item
    assert item == {
        "pk": {"S": "#bucket#topic#t1"},
        "sk": {"S": "fetch_bytes_per_s"},
        "rate": {"N": "1000"},
        "since_ms": {"N": "5000"},
        "charged": {"N": "7"},
        "expires_at_s": {"N": "86405"},
    }
    assert parse_bucket(item) == BUCKET


def test_charge_adds_below_the_ceiling_only() -> None:
    charge = bucket_charge(bucket_key("topic", "t1", "fetch_bytes_per_s"), BUCKET, 3, 6_000)
    assert charge.values[":ceiling"] == {"N": "1400"}
    assert charge.values[":units"] == {"N": "3"}
    assert "charged < :ceiling" in charge.condition
