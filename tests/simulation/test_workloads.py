"""Workloads that the seed does not combine keep the service's promises under seeded schedules and faults.

`make test` runs a few seeds of each case. `make test-all` runs all, and sees that they were worth something: each kind
of end, of race and of trouble was there.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter

import pytest

from tests.simulation.__main__ import explain
from tests.simulation.run import run
from tests.simulation.service.simulation import PROFILES


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The seeds of each combination of workloads, and the share of them for `make test`.

    All of them must show `events` more often than that, and the few ones `few_events`.
    """

    seeds: Mapping[str, int]
    few: float = 0.1
    events: Mapping[str, float] = field(default_factory=dict)
    few_events: Mapping[str, float] = field(default_factory=dict)
    profiles: tuple[str, ...] = ("express3",)

    @property
    def name(self) -> str:
        return next(iter(self.seeds))


def _inline(workloads: str, few: float = 0.0) -> Case:
    return Case(
        seeds={workloads: 12},
        few=few,
        events={"inline append": 120},
        few_events={"inline append": 40} if few else {},
        profiles=(*PROFILES,),
    )


def _sharing(workload: str, seeds: int, *events: str) -> Case:
    return Case(seeds={workload: seeds}, events={f"share {event}": 3 for event in events})


def _sleeping(workloads: str, seeds: int, few: int = 0) -> Case:
    """With each workload, its clients are the programs that sleep."""
    few_events = {"nap": few / 3} if few else {}
    return Case(
        seeds={f"{workloads},sleeping": seeds}, few=few / seeds, events={"nap": seeds / 4}, few_events=few_events
    )


CASES = [
    Case(
        seeds={"acknowledged": 100},
        events={
            "log start raised past readers": 100,
            **{f"{reader} back": 5 for reader in ("Committer", "Member", "Workers", "Subscribed")},
        },
        few_events={"log start raised past readers": 7},
    ),
    Case(
        seeds={"mirroring": 40, "mirroring,retention": 10},
        few=0.15,
        events={
            **{f"mirror {event}": 2 for event in ("promoted", "resync", "widened", "goes back", "is ahead")},
            **{"doubled push": 20, "lost answer of a push": 20, "push frozen": 1, "mirror checked": 30},
            "mirror push appended": 200,
            "mirror missed": 5,
            **{"timer copied": 50, "told timer came": 50, "copy delivered": 1, "timers whole": 5},
        },
    ),
    Case(
        seeds={"moving": 60},
        few=0.1,
        events={
            **{f"move {event}": 5 for event in ("promoted", "not equal", "refused", "ended")},
            **{"topic moved": 200, "topic reopened": 3, "late promotion": 20, "moved head promoted": 40},
            **{"timer copied": 50, "told timer came": 50, "timers told since a move": 3},
        },
    ),
    Case(
        seeds={
            "pushing": 50,
            "pushing,truncation": 20,
            "pushing,zone_loss": 10,
            "pushing,timers": 15,
            "pushing,transactions": 10,
            "pushing,lagging": 10,
        },
        events={
            **{f"push {event}": 0 for event in ("drained", "delete", "keep", "look", "frozen", "died", "outage")},
            **{f"push {event}": 0 for event in ("pause", "resume", "alter", "recreate", "topic widened", "poison")},
            **{f"push {event}": 0 for event in ("lethal", "mode INVALID_CONFIG", "start INVALID_CONFIG")},
            **{"doubled delivery": 3, "lost message": 3, "killed before": 3, "killed after": 3},
            "push failed": 10,
            "runs with kills": 52,
        },
    ),
    _sharing(
        "sharing",
        60,
        *("accept ok", "accept done", "accept LOCK_LOST", "release ok", "reject ok", "renew ok", "worker died"),
        *("record buried", "record buried without reject", "record handed out again", "record filtered out"),
        *("group reset", "group deleted", "topic widened"),
    ),
    _sharing(
        "accepting",
        40,
        *("record handed out again", "transaction committed", "transaction lost its lock", "transaction fenced"),
    ),
    _sharing("repeating", 10, "accept ok", "accept done", "record handed out again"),
    _sharing("redriving", 30, "record redriven", "worker died"),
    _sharing("ranking", 30, "lower record locked", "highest record locked"),
    _sharing("fairness", 30, "acquire with several tenants", "records passed over"),
    _sharing("sharing_fairly", 30, "record buried", "record handed out again", "record filtered out", "group reset"),
    _sharing("waking", 30, "worker slept", "worker woken", "worker looks again", "release ok"),
    Case(
        seeds={"claiming": 500},
        few=0.03,
        events={"quota exceeded": 500, "late effect": 0, "repeated": 0},
        few_events={"quota exceeded": 20, "killed before": 60, "killed after": 60, "lost reply": 60, "lost answer": 20},
    ),
    Case(
        seeds={"auditing": 400},
        few=0.04,
        events={"late effect": 0, "repeated": 0, "lost answer": 0},
        few_events=dict.fromkeys(("killed before", "killed after", "lost reply"), 8),
    ),
    Case(
        seeds={"scheduling": 100, "scheduling,lagging": 30, "scheduling,zone_loss": 20},
        few=0.04,
        events={"schedule run": 700, "late effect": 10, "lost answer": 10},
        few_events={"schedule run": 15},
    ),
    Case(seeds={"filtering,outage": 50}, few=0.1, events={"zone refuses": 50}, few_events={"zone refuses": 100}),
    _sleeping("timers", 60, few=6),
    _sleeping("claiming", 60, few=6),
    _sleeping("traffic", 20, few=3),
    *(_sleeping(each, 60) for each in ("groups", "transactions", "recreation", "timers,transactions")),
    *(_sleeping(each, 20) for each in ("draining", "sharing", "accepting", "generations", "traffic,commits")),
    _inline("inline,traffic", few=0.2),
    _inline("inline,rolling,tiering,sweep", few=0.2),
    _inline("inline,traffic,recreation"),
    _inline("inline,traffic,zone_loss,zone_moves,recover_zones"),
    _inline("inline,traffic,transactions"),
    _inline("inline,rolling,retention,sweep"),
    _inline("inline,compaction,cleaning,sweep"),
    _inline("inline,traffic,scrub,repair,replicate"),
    _inline("inline,timers,tiering"),
    _inline("inline,sharing,accepting"),
    _inline("inline,freezing,traffic,tiering"),
    _inline("inline,filtering,truncation"),
    _inline("inline,pushing"),
    Case(
        seeds={"overdue": 300},
        few=0.04,
        events={"share record over": 1_500, "share record buried": 20, "push drained": 80},
        few_events={"share record over": 50, "push drained": 2},
    ),
    Case(
        seeds={"expiring": 300},
        few=0.01,
        events={"expiring append": 3_000, "item expired": 3_000, "read to the end": 3_000, "nap": 300},
        few_events={"expiring append": 50, "item expired": 50},
        profiles=(*PROFILES,),
    ),
]
_PUSH_FAILURES = ("throttled", "broken", "refused", "late", "partly", "hanging")  # of single invocations


def _expect_no_failure(case: Case, share: float) -> Counter[str]:
    counts: Counter[str] = Counter()
    for workloads, seeds in case.seeds.items():
        for seed in range(round(seeds * share)):
            result = run(seed, workloads, case.profiles[seed % len(case.profiles)])
            if result.failure is not None:
                pytest.fail(explain(result), pytrace=False)
            assert result.lost == 0 or "inline" not in workloads
            counts += result.faults
            counts["runs with kills"] += any(fault.startswith("killed") for fault in result.faults)
    counts["push failed"] = sum(counts[f"push {failure}"] for failure in _PUSH_FAILURES)
    return counts


@pytest.mark.parametrize("case", [each for each in CASES if each.few], ids=attrgetter("name"))
def test_promises_hold_in_a_few_runs_whatever_fails(case: Case) -> None:
    _expect_often(_expect_no_failure(case, case.few), case.few_events)


@pytest.mark.minutes
@pytest.mark.parametrize("case", CASES, ids=attrgetter("name"))
def test_promises_hold_in_many_runs_in_each_kind_of_trouble(case: Case) -> None:
    _expect_often(_expect_no_failure(case, 1.0), case.events)


def _expect_often(counts: Counter[str], events: Mapping[str, float]) -> None:
    rare = {event: counts[event] for event, count in events.items() if counts[event] <= count}
    assert not rare
