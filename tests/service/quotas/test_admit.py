"""Shares of a quota: what instances charge together, what a request costs, and what happens without credit."""

from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import QUOTA_BURST_MS
from penstock_core.outcomes import outcome_of
from penstock_core.quotas.bucket import BucketKey
from penstock_core.quotas.quota import Rate, Subject
from penstock_service.adapters.memory.service import memory_stores
from penstock_service.adapters.system import SystemEntropy, ThreadExecutor
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import Runtime
from penstock_service.quotas.admin.set_quota import put_quota
from penstock_service.quotas.admit import admit, admit_fetch, principal_spender, spend_fetched, take_share
from tests.service.quotas.counted_quotas import CountedQuotas
from tests.support.service import SteppedClock

KEY = BucketKey(subject=Subject.PRINCIPAL, name="ledger", rate=Rate.PRODUCE_REQUESTS)
RATE = 1_000
WINDOW_MS = 10_000


class Service:
    """Some instances over one store, with a clock that the test steps."""

    def __init__(self, instances: int) -> None:
        self.clock = SteppedClock()
        self.quotas = CountedQuotas()
        stores = replace(memory_stores(), quotas=self.quotas)
        runtime = Runtime(clock=self.clock, entropy=SystemEntropy(), executor=ThreadExecutor())
        self.instances = [Instance.new(stores, runtime) for _ in range(instances)]

    def is_taken(self, instance: int, units: int = 1) -> bool:
        done = outcome_of(lambda wanted: take_share(self.instances[instance], KEY, RATE, wanted), units)
        return not (isinstance(done, PenstockError) and done.code is ErrorCode.THROTTLED)

    def served(self, asked_per_s: int, for_ms: int) -> list[int]:
        """The moments of the requests that passed, asked evenly over time and of the instances in turn."""
        moments = []
        asked = 0
        start_ms = self.clock.now_ms()
        for elapsed_ms in range(for_ms):
            while asked * 1_000 < asked_per_s * elapsed_ms:
                if self.is_taken(asked % len(self.instances)):
                    moments.append(start_ms + elapsed_ms)
                asked += 1
            self.clock.time_ms += 1
        return moments


@pytest.mark.parametrize("instances", [1, 3, 20, 100])
def test_instances_serve_the_quota_within_a_tenth_over_ten_seconds_when_callers_ask_for_more(instances: int) -> None:
    service = Service(instances)
    moments = service.served(asked_per_s=3 * RATE, for_ms=25_000)
    start_ms = moments[0]
    counts = [
        sum(begin <= moment < begin + WINDOW_MS for moment in moments)
        for begin in range(start_ms, start_ms + 15_000, 500)
    ]
    assert max(counts) <= 1.1 * RATE * WINDOW_MS / 1_000
    assert min(counts) >= 0.9 * RATE * WINDOW_MS / 1_000


@pytest.mark.parametrize("instances", [1, 10])
def test_caller_at_half_of_its_quota_is_never_refused(instances: int) -> None:
    service = Service(instances)
    assert len(service.served(asked_per_s=RATE // 2, for_ms=20_000)) >= RATE // 2 * 20 - 1


def test_caller_far_below_its_quota_costs_a_call_each_ten_seconds() -> None:
    service = Service(1)
    service.served(asked_per_s=RATE // 100, for_ms=20_000)
    service.quotas.calls = 0
    served = service.served(asked_per_s=RATE // 100, for_ms=60_000)
    assert len(served) >= RATE // 100 * 60 - 1
    assert service.quotas.calls <= 12


def test_refused_instance_asks_the_store_no_more_until_there_is_credit() -> None:
    service = Service(1)
    while service.is_taken(0, 10):
        pass
    service.quotas.calls = 0
    assert not any(service.is_taken(0) for _ in range(100))
    assert service.quotas.calls == 0
    service.clock.time_ms += 1_000
    assert service.is_taken(0)


def test_request_larger_than_the_burst_passes_and_delays_the_next() -> None:
    service = Service(1)
    assert service.is_taken(0, 5 * RATE)
    assert not service.is_taken(0)
    service.clock.time_ms += 4_000
    assert not service.is_taken(0)
    service.clock.time_ms += 2_000
    assert service.is_taken(0)


def test_refusal_tells_when_to_come_back_and_names_the_quota() -> None:
    service = Service(1)
    assert service.is_taken(0, RATE * (QUOTA_BURST_MS + 2_000) // 1_000)
    with pytest.raises(PenstockError, match="produce_requests_per_s=1000") as refused:
        take_share(service.instances[0], KEY, RATE, 1)
    assert 2_000 <= refused.value.facts["retry_after_ms"] <= 4_100
    assert not refused.value.maybe_applied


def test_altered_rate_holds_at_once_for_the_next_charge() -> None:
    service = Service(2)
    assert service.is_taken(0, 50 * RATE)
    assert not service.is_taken(1)
    service.clock.time_ms += 1
    take_share(service.instances[0], KEY, 10 * RATE, 1)
    take_share(service.instances[1], KEY, 10 * RATE, 1)


def test_request_passes_when_the_store_cannot_be_reached() -> None:
    service = Service(1)
    service.quotas.failure = PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "no answer")
    assert all(service.is_taken(0) for _ in range(3))
    counts, entries = service.instances[0].telemetry.take()
    assert counts["quota_uncharged"] == 3
    assert entries[0][1]["error"] == "STORAGE_UNAVAILABLE"


def test_request_is_refused_when_the_bucket_is_throttled() -> None:
    service = Service(1)
    service.quotas.failure = PenstockError(ErrorCode.THROTTLED, "too many charges")
    assert not service.is_taken(0)


def _served(service: Service, principals: list[str], for_ms: int) -> dict[str, int]:
    """The requests that passed, if each principal asks for three times the rate, of all instances in turn."""
    passed = dict.fromkeys(principals, 0)
    asked = 0
    for elapsed_ms in range(for_ms):
        while asked * 1_000 < 3 * RATE * len(principals) * elapsed_ms:
            principal = principals[asked % len(principals)]
            instance = service.instances[asked // len(principals) % len(service.instances)]
            try:
                admit(instance, principal_spender(principal), {Rate.PRODUCE_REQUESTS: 1})
                passed[principal] += 1
            except PenstockError:
                pass
            asked += 1
        service.clock.time_ms += 1
    return passed


@pytest.mark.parametrize("is_shared", [False, True])
def test_names_of_a_pattern_have_a_budget_each_or_share_one(is_shared: bool) -> None:
    service = Service(3)
    put_quota(service.instances[0], "principal", "arn:shop-*", {"produce_requests_per_s": RATE}, is_shared=is_shared)
    passed = _served(service, ["arn:shop-api", "arn:shop-jobs"], 10_000)
    budget = RATE * 10
    if is_shared:
        assert 0.9 * budget <= sum(passed.values()) <= 1.1 * budget
    else:
        assert all(0.9 * budget <= each <= 1.1 * budget for each in passed.values())


def test_spent_shared_quota_refuses_all_its_names_and_no_other() -> None:
    service = Service(1)
    [instance] = service.instances
    put_quota(instance, "principal", "arn:shop-*", {"fetch_bytes_per_s": RATE}, is_shared=True)
    spend_fetched(instance, principal_spender("arn:shop-api"), 100 * RATE)
    with pytest.raises(PenstockError, match=r"the team of 'arn:shop-\*' has spent its quota fetch_bytes_per_s"):
        admit_fetch(instance, principal_spender("arn:shop-jobs"), 10)
    assert admit_fetch(instance, principal_spender("arn:till"), 10) == 10


def test_many_names_of_patterns_read_the_quotas_once() -> None:
    service = Service(1)
    [instance] = service.instances
    for number in range(50):
        put_quota(
            instance, "principal", f"arn:team{number:02}-*", {"produce_requests_per_s": 10 * RATE}, is_shared=True
        )
    service.quotas.calls = service.quotas.lists = 0
    for number in range(500):
        admit(instance, principal_spender(f"arn:team{number % 50:02}-{number}"), {Rate.PRODUCE_REQUESTS: 1})
    assert service.quotas.lists == 1
    assert service.quotas.calls <= 2 * 50  # what the bucket of each team costs
