"""A hundred schedules of each minute on the deployed stack, while functions are killed: each time once, and soon."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from random import Random

import pytest

from penstock import Admin, Consumer
from tests.end_to_end.fault_proxy import Call, Fault, Kill, fault_proxy
from tests.end_to_end.local_stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.minutes]
SCHEDULES, MINUTES = 100, 10
LATE_MS_P99 = 10_000
_MINUTE_S = 60


@dataclass(slots=True)
class Killer:
    """Kills the function once a minute, at one of its first transactions: before it has its effect, or after."""

    random: Random = field(default_factory=lambda: Random(7))
    minute: int = 0
    left: int = -1
    kills: list[bool] = field(default_factory=list)

    def decide(self, call: Call) -> Fault | None:
        if call.operation != "TransactWriteItems":
            return None
        minute = int(time.time() // _MINUTE_S)
        if minute != self.minute:
            self.minute, self.left = minute, self.random.randrange(4)
        self.left -= 1
        if self.left != -1:
            return None
        self.kills.append(self.random.random() < 0.5)
        return Kill(is_applied=self.kills[-1])


@pytest.fixture
def killer(stack: Stack) -> Iterator[Killer]:
    lambdas = stack.root_client("lambda")
    before = lambdas.get_function_configuration(FunctionName="penstock-promote")["Environment"]["Variables"]
    killer = Killer()
    with fault_proxy(stack.endpoint_url, killer.decide) as url:
        through = {**before, "AWS_ENDPOINT_URL_DYNAMODB": url}
        lambdas.update_function_configuration(FunctionName="penstock-promote", Environment={"Variables": through})
        try:
            yield killer
        finally:
            lambdas.update_function_configuration(FunctionName="penstock-promote", Environment={"Variables": before})


def test_each_time_has_one_record_within_seconds_while_functions_are_killed(
    stack: Stack, admin: Admin, topic: str, killer: Killer
) -> None:
    names = [f"each-{number}" for number in range(SCHEDULES)]
    for name in names:
        admin.put_schedule(name, "* * * * *", topic, {"key": name, "value": name})
    first_ms = (int(time.time()) // _MINUTE_S + 1) * _MINUTE_S * 1_000
    last_ms = first_ms + (MINUTES - 1) * _MINUTE_S * 1_000
    time.sleep(last_ms / 1_000 + 45 - time.time())  # the bar is of ten minutes
    for name in names:
        admin.put_schedule(name, enabled=False)
    count = sum(each.high_watermark for each in admin.describe_topic(topic).offsets)
    runs: Counter[tuple[str, int]] = Counter()
    late_ms: list[int] = []
    with Consumer(topic, transport=stack.transport(), auto_offset_reset="earliest") as consumer:
        for record in islice(consumer, count):
            headers = dict(record.headers)
            due_ms = int(headers["penstock.schedule.due-ms"] or b"")
            runs[(headers["penstock.schedule.name"] or b"").decode(), due_ms] += 1
            if first_ms <= due_ms <= last_ms:
                late_ms.append(record.timestamp_ms - due_ms)
    assert max(runs.values()) == 1, "each run once"
    wanted = {(name, due_ms) for name in names for due_ms in range(first_ms, last_ms + 1, _MINUTE_S * 1_000)}
    late_ms.sort()
    p99 = late_ms[-len(late_ms) // 100]
    print(f"{len(killer.kills)} kills, lateness ms: p50 {late_ms[len(late_ms) // 2]}, p99 {p99}, most {late_ms[-1]}")
    assert wanted - runs.keys() == set(), "a time that only a later run stands for was missed"
    assert len(killer.kills) >= MINUTES
    assert set(killer.kills) == {True, False}
    assert p99 < LATE_MS_P99
    assert late_ms[0] >= 0
