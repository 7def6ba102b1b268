"""A run that delivers nothing fails, and a run of subscriptions alone asks for no more than they do."""

from typing import Any, cast

from tests.chaos.injector import Injector
from tests.chaos.judging.verdict import Verdict
from tests.chaos.plan import Plan
from tests.chaos.push.subscriptions import DRAINED, MIRROR
from tests.chaos.workload import Clients
from tests.end_to_end.fault_proxy import Call
from tests.history.push.figures import PushFigures
from tests.history.report import Counts, Report

DELIVERED = PushFigures(records=1, buried=0, repeats=0, failures=0)
NOTHING = PushFigures(records=0, buried=3, repeats=0, failures=3)


def clients(*, is_push_only: bool) -> Clients:
    return Clients(target=cast(Any, None), pushes=cast(Any, None), seed=1, is_push_only=is_push_only)


def verdict(subscriptions: dict[str, PushFigures], commits: int = 0) -> Verdict:
    """A verdict on these figures."""
    report = Report(
        found={},
        examples=(),
        explained=(),
        counts=Counts(commits=commits),
        worst_lag=(),
        worst_empty_lag=(),
        lateness=cast(Any, None),
        subscriptions=subscriptions,
    )
    return Verdict(
        history=report, acknowledged=0, truncated=0, failed=0, unknown=0, lost=0, tail_lag_ms=0.0, violations=()
    )


def test_each_subscription_must_have_delivered_something() -> None:
    everything = dict.fromkeys(DRAINED, DELIVERED)
    assert clients(is_push_only=True).undone(verdict(everything)) == []
    [wrong] = clients(is_push_only=True).undone(verdict({**everything, MIRROR: NOTHING}))
    assert wrong == "subscription mirror has delivered nothing"
    del everything[MIRROR]
    assert clients(is_push_only=True).undone(verdict(everything)) == [wrong]


def test_group_must_have_committed_unless_only_subscriptions_work() -> None:
    everything = dict.fromkeys(DRAINED, DELIVERED)
    [wrong] = clients(is_push_only=False).undone(verdict(everything))
    assert "commit" in wrong
    assert clients(is_push_only=False).undone(verdict(everything, commits=1)) == []


def test_run_of_subscriptions_alone_is_warm_without_fetches_and_has_no_share_workers() -> None:
    injector = Injector(Plan(seed=0, seconds=1, outages=(), strikes=()), {})
    for _ in range(40):
        injector.decide(Call(service="api", operation="POST /v1/produce"))
    assert clients(is_push_only=True).is_warm(injector)
    assert not clients(is_push_only=False).is_warm(injector)
    assert clients(is_push_only=True).slots() == ()
    assert clients(is_push_only=False).slots() != ()
