"""What a fetch may answer within its quotas, and what it owes afterwards."""

import pytest

from penstock_core.errors import PenstockError
from penstock_core.limits import FETCH_BYTES_MAX, QUOTA_BURST_MS, QUOTA_FETCH_BYTES_MIN
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.quotas.admin.set_quota import put_quota
from penstock_service.quotas.admit import allow_fetch
from penstock_service.topics.create_topic import create_topic
from tests.support.service import SteppedClock

ME = "arn:aws:iam::111122223333:role/me"
RATE = 4 * 1024 * 1024


@pytest.fixture
def instance() -> Instance:
    made = memory_instance(clock=SteppedClock())
    for topic in ("orders", "other"):
        create_topic(made, topic, 1, {})
    return made


def test_fetch_without_quotas_may_answer_all_that_it_asks_for(instance: Instance) -> None:
    assert allow_fetch(instance, ME, ["orders"], FETCH_BYTES_MAX).max_bytes == FETCH_BYTES_MAX


def test_fetch_may_answer_a_part_of_the_credit(instance: Instance) -> None:
    put_quota(instance, "principal", ME, {"fetch_bytes_per_s": RATE})
    allowed = allow_fetch(instance, ME, ["orders"], FETCH_BYTES_MAX).max_bytes
    assert QUOTA_FETCH_BYTES_MIN < allowed <= RATE * QUOTA_BURST_MS // 1_000


def test_fetch_may_always_answer_the_least(instance: Instance) -> None:
    put_quota(instance, "topic", "orders", {"fetch_bytes_per_s": 10})
    assert allow_fetch(instance, ME, ["orders"], FETCH_BYTES_MAX).max_bytes == QUOTA_FETCH_BYTES_MIN


def test_debt_of_one_topic_refuses_the_next_fetch_of_it_only(instance: Instance) -> None:
    put_quota(instance, "topic", "*", {"fetch_bytes_per_s": RATE})
    allowance = allow_fetch(instance, ME, ["orders", "other"], FETCH_BYTES_MAX)
    allowance.settle(instance, {"orders": 10 * RATE, "other": 1})
    allow_fetch(instance, ME, ["other"], FETCH_BYTES_MAX)
    for _ in range(3):
        with pytest.raises(PenstockError, match="the topic has spent its quota fetch_bytes_per_s"):
            allow_fetch(instance, ME, ["orders"], FETCH_BYTES_MAX)
    instance.clock.sleep_ms(11_000)
    allow_fetch(instance, ME, ["orders"], FETCH_BYTES_MAX)


def test_topic_that_does_not_exist_has_no_quota(instance: Instance) -> None:
    put_quota(instance, "topic", "*", {"fetch_bytes_per_s": 1})
    assert allow_fetch(instance, ME, ["gone"], FETCH_BYTES_MAX).max_bytes == FETCH_BYTES_MAX
