"""The clock of an embedding program follows AWS, by the dates of DynamoDB's answers."""

from email.utils import formatdate
from random import Random
from typing import Any

import botocore.session
import pytest
from botocore.awsrequest import AWSResponse

from penstock_core.errors import PenstockError
from penstock_core.quotas.bucket import BucketKey
from penstock_service.adapters.aws_clock import AwsClock
from penstock_service.instance.instance import Instance
from penstock_service.quotas.admit import take_share
from tests.support.service import SteppedClock, another_instance, patient_instance

START_MS = 1_790_000_000_000.0
HALF_MINUTE_MS = 30_000


class WrongClock:
    """A machine whose clock is `ahead_ms` before that of AWS, which is `true`."""

    def __init__(self, true: SteppedClock, ahead_ms: int) -> None:
        self._true = true
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._true.now_ms() + self.ahead_ms

    def monotonic_ms(self) -> float:
        return self._true.monotonic_ms()

    def sleep_ms(self, duration_ms: float) -> None:
        self._true.sleep_ms(duration_ms)


@pytest.fixture
def true() -> SteppedClock:
    clock = SteppedClock()
    clock.time_ms = START_MS
    return clock


def answer(clock: AwsClock, machine: WrongClock, true: SteppedClock, way_ms: int = 5) -> None:
    """One call: AWS dates its answer in whole seconds, in the middle of the way."""
    sent_ms = machine.now_ms()
    true.time_ms += way_ms
    told_ms = true.now_ms() // 1_000 * 1_000
    true.time_ms += way_ms
    clock.note(sent_ms, told_ms)


@pytest.mark.parametrize("ahead_ms", [-240_000, -700, 0, 20, HALF_MINUTE_MS, 240_000])
def test_clock_is_within_some_milliseconds_of_aws_after_some_answers(true: SteppedClock, ahead_ms: int) -> None:
    machine, random = WrongClock(true, ahead_ms), Random(1)
    clock = AwsClock(machine)
    for _ in range(200):
        answer(clock, machine, true)
        true.time_ms += random.uniform(0.0, 2_000.0)
    assert abs(clock.now_ms() - true.now_ms()) <= 40
    assert clock.monotonic_ms() == true.monotonic_ms()


def test_first_answer_already_brings_the_clock_within_a_second(true: SteppedClock) -> None:
    machine = WrongClock(true, HALF_MINUTE_MS)
    clock = AwsClock(machine)
    answer(clock, machine, true)
    assert abs(clock.now_ms() - true.now_ms()) <= 1_020


def test_answer_that_was_on_its_way_while_the_machine_slept_moves_nothing(true: SteppedClock) -> None:
    machine = WrongClock(true, 0)
    clock = AwsClock(machine)
    sent_ms, told_ms = machine.now_ms(), true.now_ms() // 1_000 * 1_000
    true.time_ms += 6 * 3_600_000
    clock.note(sent_ms, told_ms)
    assert clock.now_ms() == true.now_ms()


@pytest.mark.parametrize("headers", [{"Date": formatdate(START_MS / 1_000, usegmt=True)}, {}, {"Date": "noon"}])
def test_answers_of_a_driver_tell_the_time(true: SteppedClock, headers: dict[str, str]) -> None:
    machine = WrongClock(true, HALF_MINUTE_MS)
    clock = AwsClock(machine)
    session = botocore.session.get_session()
    session.set_credentials("key", "secret")
    driver: Any = session.create_client("dynamodb", region_name="us-east-1")
    clock.follow(driver)

    def send(request: Any, **_: Any) -> AWSResponse:
        response = AWSResponse(request.url, 200, headers, None)
        response._content = b'{"TableNames": []}'
        return response

    driver.meta.events.register("before-send", send)
    driver.list_tables()
    is_told = "GMT" in headers.get("Date", "")
    assert abs(clock.now_ms() - true.now_ms()) <= (1_000 if is_told else HALF_MINUTE_MS)
    assert is_told == (clock.now_ms() != machine.now_ms())


def served(true: SteppedClock, ahead_ms: int) -> tuple[int, int]:
    """The requests that passed in 40 s by two instances of the service, and by a program that asks five times more."""
    first = patient_instance(true)
    machine = WrongClock(true, ahead_ms)
    clock = AwsClock(machine)
    good, embedded = [first, another_instance(first)], another_instance(first, clock=clock)
    key = BucketKey(subject="topic", name="t", rate="produce_requests")

    def passed(instance: Instance, times: int) -> int:
        done = 0
        for _ in range(times):
            try:
                take_share(instance, key, 1_000, 1)
                done += 1
            except PenstockError:
                pass
        return done

    answer(clock, machine, true)  # the read of the quotas
    by_good = by_embedded = 0
    for step in range(4_000):
        true.time_ms += 10
        by_good += sum(passed(each, 2) for each in good)
        by_embedded += passed(embedded, 10)
        if step % 37 == 0:
            answer(clock, machine, true, way_ms=1)
    return by_good, by_embedded


def test_program_whose_machine_is_ahead_starves_nobody_of_a_shared_quota(true: SteppedClock) -> None:
    fair, skewed = served(true, 0), served(true, HALF_MINUTE_MS)
    assert skewed[0] > fair[0] / 2, f"with a right clock {fair}, and half a minute ahead {skewed}"
    assert sum(skewed) < 1.1 * sum(fair)
