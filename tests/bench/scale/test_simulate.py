"""The model against what can be computed, and against its own bounds."""

from dataclasses import fields, replace
from math import factorial
from random import Random

import pytest
import simpy

from bench.scale.latencies import Latencies, Latency
from bench.scale.scenario import NEW_ACCOUNT, Limits, Scenario
from bench.scale.service import Instances, Steps, ThrottledError, Tokens
from bench.scale.simulate import quantile, simulate
from penstock.http.named_transport import TransportName

SMALL = Scenario(name="small", bytes_per_s=20_000, partitions=2, producers=2, consumers=1, seconds=10.0)
STILL = Latency(median_ms=10, sigma=1e-9, basis="test", source="")
FIXED = Latencies(**{each.name: STILL for each in fields(Latencies)})


def _erlang_b(servers: int, load: float) -> float:
    terms = [load**each / factorial(each) for each in range(servers + 1)]
    return terms[-1] / sum(terms)


def test_instances_refuse_as_often_as_erlangs_formula_says() -> None:
    """M/M/c/c: calls that find all instances busy are lost."""
    environment, chance = simpy.Environment(), Random(3)
    instances = Instances(environment, most=5)
    asked, refused = 20_000, 0

    def call() -> Steps:
        nonlocal refused
        try:
            instances.enter()
        except ThrottledError:
            refused += 1
            return
        began = environment.now
        yield environment.timeout(chance.expovariate(1 / 40))
        instances.leave(began)

    def calls() -> Steps:
        for _ in range(asked):
            yield environment.timeout(chance.expovariate(1 / 10))
            environment.process(call())

    environment.process(calls())
    environment.run()
    assert refused / asked == pytest.approx(_erlang_b(5, 4.0), abs=0.015)


def test_latency_is_the_sum_of_its_steps_when_nothing_waits() -> None:
    """A producer that sends one record at a time: linger, gateway, invoke, CPU, put, update."""
    outcome = simulate(replace(SMALL, bytes_per_s=2_000, producers=1, partitions=1), latencies=FIXED)
    assert outcome.append_ms[0] == pytest.approx(5 + 10 + 10 + 5.1 + 10 + 10, abs=0.2)
    appended = outcome.append_ms[0]
    assert outcome.consume_ms[0] == pytest.approx(appended + 10 + 10 + 10 + 5.1 + 10 + 10, abs=0.2)


@pytest.mark.parametrize(("transport", "passed_ms"), [("http", 10 + 10), ("lambda", 10), ("embedded", 0)])
def test_call_takes_what_its_transport_passes(transport: TransportName, passed_ms: float) -> None:
    case = replace(SMALL, bytes_per_s=2_000, producers=1, partitions=1, transport=transport)
    outcome = simulate(case, latencies=FIXED)
    assert outcome.append_ms[0] == pytest.approx(5 + passed_ms + 5.1 + 10 + 10, abs=0.2)
    assert outcome.consume_ms[0] - outcome.append_ms[0] == pytest.approx(10 + passed_ms + 5.1 + 10 + 10, abs=0.2)
    assert (outcome.instances == 0) == (transport == "embedded")


def test_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    runs = [simulate(SMALL, seed=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0].append_ms != runs[2].append_ms


def test_all_that_came_is_taken_where_no_limit_is_near() -> None:
    outcome = simulate(SMALL)
    assert outcome.share == pytest.approx(1, abs=0.02)
    assert outcome.is_kept_up


def test_limit_that_is_too_low_is_named() -> None:
    starved = simulate(replace(SMALL, limits=Limits(api_requests_per_s=2, api_burst=1)))
    assert starved.bottleneck == "API Gateway requests (refuses)"
    few = simulate(
        replace(SMALL, bytes_per_s=200_000, producers=20, partitions=20, limits=replace(NEW_ACCOUNT, instances=1))
    )
    assert few.bottleneck == "Lambda instances (refuses)"


@pytest.mark.slow
def test_slice_of_a_system_looks_like_the_whole() -> None:
    whole = replace(SMALL, bytes_per_s=800_000, partitions=16, producers=16, consumers=16, seconds=3.0)
    sliced = replace(whole, bytes_per_s=whole.bytes_per_s / 4, partitions=4, producers=4, consumers=4)
    assert simulate(sliced).append_ms[0] == pytest.approx(simulate(whole).append_ms[0], rel=0.1)


def test_scenario_is_cut_into_no_more_slices_than_it_has_clients() -> None:
    large = replace(SMALL, bytes_per_s=1e9, partitions=1_000, producers=1_000, consumers=10)
    assert large.slices() == 10
    assert large.slice().limits.api_requests_per_s == large.limits.api_requests_per_s / 10


def test_tokens_come_back_by_time_and_up_to_the_burst() -> None:
    tokens = Tokens(per_s=1_000, burst=2)
    assert [tokens.take(1, 0.0) for _ in range(3)] == [True, True, False]
    assert tokens.take(1, 1.0)
    assert [tokens.take(1, 100.0) for _ in range(3)] == [True, True, False]


def test_quantile_counts_weights() -> None:
    assert quantile([(1.0, 98.0), (5.0, 1.0), (9.0, 1.0)], 0.5) == 1.0
    assert quantile([(1.0, 98.0), (5.0, 1.0), (9.0, 1.0)], 0.99) == 5.0
    assert quantile([], 0.5) == 0.0
