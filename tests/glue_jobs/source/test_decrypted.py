"""Encrypted values in Spark: in the clear with the keys, as they are stored without, an error with others."""

import os
import pickle
from typing import TYPE_CHECKING

import pytest

import penstock_spark
from penstock.encryption import Encryption, KmsKeys, LocalKeys
from penstock_core.errors import PenstockError
from penstock_core.records.codec import NewRecord, encode
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from tests.support.service import entry, new_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS, OTHERS = LocalKeys({"2026": os.urandom(32)}), LocalKeys({"other": os.urandom(32)})


@pytest.fixture
def orders(spark: "SparkSession", instance: Instance, storage_options: dict[str, str]) -> "DataFrame":
    """An encrypted record with a header of its own, a plain one, and a tombstone."""
    new_topic(instance, "orders", partitions=1)
    value, headers = Encryption(KEYS).encrypt("orders", b"secret", key=b"ada", headers=[("type", b"order")])
    records = [
        NewRecord(1, b"ada", value, [*headers]),
        NewRecord(2, b"bob", b"plain"),
        NewRecord(3, b"ada", None),
    ]
    [result] = produce(instance, [entry("orders", 0, encode(records))], Acks.QUORUM)
    assert not isinstance(result, PenstockError)
    return penstock_spark.read(spark, subscribe="orders", includeHeaders=True, **storage_options)


def test_values_are_in_the_clear_and_the_header_is_gone(orders: "DataFrame") -> None:
    found = penstock_spark.decrypted(orders, KEYS).orderBy("offset").collect()
    assert [(row.key, row.value) for row in found] == [(b"ada", b"secret"), (b"bob", b"plain"), (b"ada", None)]
    assert [row.headers and [tuple(each) for each in row.headers] for row in found] == [
        [("type", b"order")],
        None,
        None,
    ]
    assert b"secret" not in [row.value for row in orders.collect()]


def test_other_keys_fail_the_query_with_the_place(orders: "DataFrame") -> None:
    with pytest.raises(Exception, match=r"offset 0 of orders\[0\]: the value is encrypted by the key '2026'"):
        penstock_spark.decrypted(orders, OTHERS).collect()


def test_frame_without_headers_is_refused_with_the_option(orders: "DataFrame") -> None:
    with pytest.raises(PenstockError, match=r"no column 'headers': .*includeHeaders"):
        penstock_spark.decrypted(orders.drop("headers"), KEYS)


def test_kms_keys_travel_without_their_connections() -> None:
    keys = KmsKeys("arn:aws:kms:eu-west-1:111122223333:key/1")
    keys._clients["eu-west-1"] = lambda: None  # as a botocore client, it cannot travel
    assert pickle.loads(pickle.dumps(keys))._clients == {}
