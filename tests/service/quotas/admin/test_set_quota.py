"""Quotas for operators: a change holds for this instance at once, and for others after a time."""

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.quotas.quota import Rate, Subject
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.instance.quota_shares import TTL_MS
from penstock_service.quotas.admin.set_quota import delete_quota, list_quotas, put_quota
from tests.support.service import SteppedClock


def rate_of(instance: Instance) -> int | None:
    found = instance.quota_cache.rate_of(Subject.TOPIC, "orders", Rate.FETCH_BYTES)
    return None if found is None else found.units_per_s


def test_change_holds_at_once_here_and_within_the_ttl_elsewhere() -> None:
    clock = SteppedClock()
    here = memory_instance(clock=clock)
    elsewhere = Instance.new(here.stores, here.runtime)
    assert rate_of(elsewhere) is None
    put_quota(here, "topic", "orders", {"fetch_bytes_per_s": 5})
    assert (rate_of(here), rate_of(elsewhere)) == (5, None)
    clock.sleep_ms(TTL_MS)
    assert rate_of(elsewhere) == 5
    delete_quota(here, "topic", "orders")
    assert (rate_of(here), rate_of(elsewhere)) == (None, 5)


def test_pages_cover_all_quotas_once() -> None:
    instance = memory_instance()
    names = [f"t{number}" for number in range(7)]
    for name in names:
        put_quota(instance, "topic", name, {"fetch_bytes_per_s": 5})
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page, after = list_quotas(instance, 3, after)
        found += [quota.name for quota in page]
    assert found == names


def test_quota_that_is_not_there_cannot_be_deleted() -> None:
    with pytest.raises(PenstockError, match="has no quota of its own") as refused:
        delete_quota(memory_instance(), "topic", "orders")
    assert refused.value.code is ErrorCode.UNKNOWN_QUOTA


def test_instance_goes_by_what_it_remembers_when_quotas_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteppedClock()
    instance = memory_instance(clock=clock)
    put_quota(instance, "topic", "orders", {"fetch_bytes_per_s": 5})
    assert rate_of(instance) == 5

    def fail() -> None:
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "no answer")

    monkeypatch.setattr(instance.stores.quotas, "list", fail)
    clock.sleep_ms(TTL_MS)
    assert rate_of(instance) == 5
    assert instance.telemetry.take()[0]["quotas_unread"] == 1
