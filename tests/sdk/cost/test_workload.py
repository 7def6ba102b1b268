from dataclasses import replace
from typing import Any

import pytest

from penstock.cost.workload import Workload
from penstock_core.errors import PenstockError
from penstock_core.limits import BATCH_BYTES_MAX, KIB


def test_slow_producer_sends_one_record_a_request() -> None:
    assert Workload(records_per_s=1).records_per_request == 1


def test_busy_producer_gathers_records_while_it_waits_for_answers() -> None:
    one_partition = Workload(records_per_s=10_000, partitions=1)
    assert one_partition.records_per_request == 500  # of 50 ms
    assert replace(one_partition, partitions=6, has_keys=True).records_per_request == 100  # five are under way
    assert replace(one_partition, linger_ms=100).records_per_request == 1_000
    assert replace(one_partition, producers=100).records_per_request == 5


def test_records_without_keys_stick_to_a_partition_for_a_batch() -> None:
    slow = Workload(records_per_s=200, partitions=6)
    assert slow.records_per_request == 10  # of 50 ms, in one request after the other
    assert replace(slow, has_keys=True).records_per_request == 2
    assert replace(slow, records_per_s=10_000).records_per_request == pytest.approx(256)  # they move on when it is full


def test_request_has_at_most_what_the_service_takes() -> None:
    assert Workload(records_per_s=1e6, linger_ms=1_000).bytes_per_request == BATCH_BYTES_MAX


def test_requests_carry_all_records() -> None:
    workload = Workload(records_per_s=1_000, request_bytes=64 * KIB)
    assert workload.requests_per_s * workload.records_per_request == pytest.approx(1_000)


def test_keys_spread_a_request_over_partitions() -> None:
    assert Workload(records_per_s=1_000, request_bytes=64 * KIB).partitions_per_request == 1
    keyed = Workload(records_per_s=1_000, request_bytes=64 * KIB, has_keys=True)
    assert keyed.partitions_per_request == pytest.approx(6, abs=0.001)
    assert replace(keyed, request_bytes=KIB).partitions_per_request == pytest.approx(1)


@pytest.mark.parametrize(
    "change", [{"records_per_s": -1}, {"record_bytes": 0}, {"partitions": 0}, {"request_bytes": 10**9}]
)
def test_number_without_sense_is_refused_with_its_bounds(change: dict[str, Any]) -> None:
    with pytest.raises(PenstockError, match="use a number from"):
        replace(Workload(records_per_s=1), **change)
