"""Operators change topics with a trail, and one or two runs of `audit` move the notes into it (docs/adr/0047).

Each change sets a retention that no other one sets. So the simulator knows which of them took effect, whatever happened
to their answers. Requests die between note, change and result, notes come late, and runs die between append and
removal.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock_core.audit.audit_entry import AuditEntry, AuditResult, Caller
from penstock_core.errors import PenstockError
from penstock_core.ids import AUDIT_TOPIC
from penstock_core.limits import AUDIT_RETENTION_MS_DEFAULT, AUDIT_UNKNOWN_MS, FETCH_BYTES_MAX, RETENTION_MS_MIN
from penstock_core.records.codec import decode
from penstock_service.audit.note_change import Change, audited
from penstock_service.audit.settle_audit import settle_audit
from penstock_service.instance.instance import Instance
from penstock_service.records.fetch import FetchEntry, fetch
from penstock_service.topics.alter_topic import alter_topic
from tests.simulation.engine.time_and_chance import CLOCK_SKEW_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_TOPICS = ("audited-a", "audited-b")
_BUDGET_MS = 40_000
_TIMEOUT_MS = 58_000.0
_LATE_MS = 60_000.0  # after all calls, until the last of their late effects
_AHEAD_MS = 100 * RETENTION_MS_MIN


@dataclass(slots=True)
class _Trail:
    """The changes by the id of their request: when they took effect, and what was noted of them."""

    requests: int = 0
    is_begun: bool = False  # there is a note, or there was one
    changed: dict[str, float] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)  # their callers know that nothing was done
    asked_ms: dict[str, float] = field(default_factory=dict)
    done_ms: dict[str, float] = field(default_factory=dict)

    def observe(self, label: str, method: str, arguments: tuple[Any, ...], outcome: Any, now_ms: float) -> None:
        """Take the effect of a storage call."""
        if isinstance(outcome, PenstockError):
            return
        if label == "topics" and method == "replace" and arguments[1].name in _TOPICS:
            self.changed.setdefault(str(arguments[1].config.retention_ms - _AHEAD_MS), now_ms)
        if label == "audit" and method == "put":
            entry: AuditEntry = arguments[0]
            self.is_begun = True
            if entry.result is AuditResult.DONE:
                self.done_ms.setdefault(entry.caller.request_id, now_ms)


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    trail = _Trail()
    simulation.claims.topic_changes[AUDIT_TOPIC] = [(0.0, 0.0)]  # no client sends its records, so no history has them
    for name in _TOPICS:
        simulation.topic(name, partitions=1)
    simulation.storage.observers.append(
        lambda label, method, arguments, outcome: trail.observe(
            label, method, arguments, outcome, simulation.scheduler.now_ms
        )
    )

    def operate() -> None:
        for _ in range(random.choice([5, 15])):
            simulation.scheduler.pause(random.choice([0.0, 50.0, 2_000.0, 60_000.0]) * random.random())
            _change(simulation, trail, random.choice(_TOPICS))

    def settle() -> None:
        while not simulation.is_over:
            simulation.scheduler.pause(random.choice([100.0, 3_000.0, 120_000.0]))
            _settle(simulation)

    for number in range(random.choice([1, 3])):
        simulation.work(f"operator{number}", operate)
    for number in range(random.choice([1, 2])):
        simulation.scheduler.spawn(f"audit{number}", settle)
    simulation.final_checks.append(lambda: _check_end(simulation, trail))


def _change(simulation: Simulation, trail: _Trail, topic: str) -> None:
    trail.requests += 1
    request = str(trail.requests)
    trail.asked_ms[request] = simulation.scheduler.now_ms
    retention_ms = _AHEAD_MS + trail.requests
    caller = Caller(principal="arn:aws:iam::1:user/ops", address="203.0.113.7", request_id=request)
    change = Change(action="alter_topic", kind="topic", name=topic)

    def run(to: Instance) -> None:
        audited(
            to,
            caller,
            change,
            lambda: alter_topic(to, topic, None, {"retention_ms": retention_ms}),
            lambda made: {"retention_ms": made.config.retention_ms},
        )

    try:
        simulation.call(run, is_read=False)
    except PenstockError as error:
        if not error.maybe_applied:
            trail.refused.add(request)


def _settle(simulation: Simulation) -> None:
    simulation.attempt(
        "audit failed",
        lambda to: settle_audit(to, AUDIT_RETENTION_MS_DEFAULT, budget_ms=_BUDGET_MS),
        timeout_ms=_TIMEOUT_MS,
    )


def _check_end(simulation: Simulation, trail: _Trail) -> None:
    """Once notes are old, one run leaves none. Each change that took effect is in the trail then; no other is done."""
    simulation.jump(AUDIT_UNKNOWN_MS + _LATE_MS)
    instance = simulation.undisturbed()
    settle_audit(instance, AUDIT_RETENTION_MS_DEFAULT, budget_ms=_BUDGET_MS)
    left = simulation.stores.audit.entries(100)
    expect(not left, f"{len(left)} notes stay for ever")
    entries = _entries(instance) if trail.is_begun else []
    ids: dict[str, set[str]] = {}
    results: dict[str, set[str]] = {}
    places: dict[str, int] = {}
    for place, entry in enumerate(entries):
        request = entry["request_id"]
        ids.setdefault(request, set()).add(entry["audit_id"])
        results.setdefault(request, set()).add(entry["result"])
        if entry["result"] == AuditResult.DONE:
            places.setdefault(request, place)
    for request in trail.changed:
        expect(request in ids, f"change {request} took effect, and is not in the trail")
    for request, found in ids.items():
        expect(len(found) == 1, f"change {request} is in the trail under {len(found)} ids")
        expect(request in trail.changed or request not in places, f"change {request} is done, and did not take effect")
        expect(AuditResult.BEGUN not in results[request], f"change {request} was settled as begun")
        is_done = request in places or request not in trail.done_ms
        expect(is_done, f"change {request} was noted as done, and the trail does not say so")
    for request in trail.refused & trail.changed.keys():
        expect(False, f"change {request} was refused, and took effect")
    _check_order(trail, places)


def _check_order(trail: _Trail, places: Mapping[str, int]) -> None:
    """A change that was done before another one was asked for comes before it, if clocks tell them apart."""
    for first, first_place in places.items():
        for second, place in places.items():
            is_later = trail.asked_ms[second] > trail.done_ms[first] + 2 * CLOCK_SKEW_MS + 1
            expect(not is_later or place > first_place, f"change {second} stands before {first}, and began after it")


def _entries(instance: Instance) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    offset, end = 0, 1
    while offset < end:
        wanted = FetchEntry(topic=AUDIT_TOPIC, partition=0, offset=offset, max_bytes=FETCH_BYTES_MAX)
        [found] = fetch(instance, [wanted], max_bytes=FETCH_BYTES_MAX, min_bytes=1, wait_ms=0).all_ok()
        entries += [json.loads(record.value or b"") for record in decode(found.data) if record.offset >= offset]
        offset, end = found.next_offset, found.high_watermark
    return entries
