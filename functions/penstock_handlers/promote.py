"""The function `promote`: delivers delayed records, and those of schedules, that are due.

Messages start it on time, and a rule each minute. A message names one second of one partition, or of all schedules. One
that fails comes again, and in the end goes to a dead-letter queue. The run each minute promotes what is overdue,
whatever happened to its messages. The first delayed record of a stage, or its first schedule, starts a run by itself,
which goes on until messages and minutes have begun.
"""

import os
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.log.timer import FIRST_RUN, DueSecond, decode_due_second
from penstock_core.outcomes import Outcome, Outcomes
from penstock_core.schedules.schedule import starts_runs
from penstock_handlers.edge.lambda_function import Stopwatch, logger, observed
from penstock_service.instance.instance import Instance
from penstock_service.schedules.run_schedules import ScheduleRuns, run_schedules
from penstock_service.timers.promote import Promotion, await_second, promote_second
from penstock_service.timers.promote_due import DueRun, promote_due

_LOOK_MS = 1_000.0

Answer = dict[str, list[dict[str, str]]]


def serve(event: Mapping[str, Any], instance: Instance) -> tuple[Promotion, dict[str, int], list[str]]:
    """Handles the messages of the event, or runs over what is due. Reads `PENSTOCK_BUDGET_MS`.

    Gives what was promoted, further counts, and the ids of the messages that failed.
    """
    budget_ms = int(os.environ["PENSTOCK_BUDGET_MS"])
    if "Records" in event:
        return _from_queue(event["Records"], instance, budget_ms)
    try:
        instance.stores.timer_triggers.open_queue()
    except PenstockError as error:
        instance.telemetry.log("timers_queue_closed", error=str(error))
    deadline_ms = instance.clock.monotonic_ms() + budget_ms
    schedules = _run_schedules(instance, budget_ms / 2)
    left_ms = deadline_ms - instance.clock.monotonic_ms()
    is_first = event.items() >= FIRST_RUN.items()
    run = _first_run(instance, left_ms) if is_first else promote_due(instance, budget_ms=left_ms)
    counts = {
        **_told(schedules),
        "partitions_due": run.partitions,
        "messages_sent": run.messages,
        "minutes_forgotten": run.minutes_forgotten,
        "promotions_failed": run.failures,
    }
    return run.promotion, counts, []


def _first_run(instance: Instance, budget_ms: float) -> DueRun:
    """The run that the first timer of a stage starts: it looks each second, until others take over."""
    deadline_ms = instance.clock.monotonic_ms() + budget_ms
    total = DueRun()
    while (left_ms := deadline_ms - instance.clock.monotonic_ms()) > 0:
        try:
            total = total.plus(promote_due(instance, budget_ms=left_ms))
            _run_schedules(instance, left_ms)
        except PenstockError as error:
            instance.telemetry.log("promotion_failed", error=str(error))
        instance.clock.sleep_ms(min(_LOOK_MS, left_ms))
    return total


def _from_queue(
    records: Sequence[Mapping[str, Any]], instance: Instance, budget_ms: int
) -> tuple[Promotion, dict[str, int], list[str]]:
    """Many instances may announce one second: it is promoted once for all of their messages.

    The seconds of a partition go one after the other. Side by side, they would refuse each other's transactions.
    """
    deadline_ms = instance.clock.monotonic_ms() + budget_ms
    seconds = Outcomes.collect(lambda record: decode_due_second(record["body"]), records)
    of_keys = [
        list(of_key) for _, of_key in groupby(sorted(set(seconds.ok), key=lambda each: (each.key, each.second)), _key)
    ]

    runs: list[ScheduleRuns] = []

    def promote(of_key: Sequence[DueSecond]) -> list[Outcome[Promotion]]:
        if starts_runs(of_key[0]):
            return _run_at(instance, of_key, deadline_ms, runs)
        return [*Outcomes.collect(lambda second: promote_second(instance, second, deadline_ms), of_key)]

    done: dict[DueSecond, Outcome[Promotion]] = {}
    for of_key, outcomes in zip(of_keys, instance.executor.map(promote, of_keys).all_ok(), strict=True):
        done.update(zip(of_key, outcomes, strict=True))
    failed = []
    for record, second in zip(records, seconds, strict=True):
        result = second if isinstance(second, PenstockError) else done[second]
        if isinstance(result, PenstockError):
            instance.telemetry.log("promotion_failed", message=record["messageId"], error=str(result))
            failed.append(record["messageId"])
    total = Promotion()
    for each in Outcomes([*done.values()]).ok:
        total = total.plus(each)
    counts = {"messages_taken": len(records), "promotions_failed": len(failed)}
    return total, {**counts, **(_told(runs[0]) if runs else {})}, failed


def _run_at(
    instance: Instance, seconds: Sequence[DueSecond], deadline_ms: float, runs: list[ScheduleRuns]
) -> list[Outcome[Promotion]]:
    """Runs the schedules that are due at these seconds, once for all of them."""
    if any(await_second(instance, second) for second in seconds):
        left_ms = deadline_ms - instance.clock.monotonic_ms()
        try:
            runs.append(run_schedules(instance, budget_ms=left_ms, is_each_minute=False))
        except PenstockError as error:
            return [error for _ in seconds]
    return [Promotion() for _ in seconds]


def _run_schedules(instance: Instance, budget_ms: float) -> ScheduleRuns:
    """The runs of schedules. If they fail as a whole, delayed records come all the same."""
    try:
        return run_schedules(instance, budget_ms=budget_ms)
    except PenstockError as error:
        instance.telemetry.log("schedule_postponed", error=str(error))
        return ScheduleRuns(failures=1)


def _told(runs: ScheduleRuns) -> dict[str, int]:
    """The counts as the log line has them."""
    return {
        "schedules_delivered": runs.delivered,
        "schedules_refused": runs.refused,
        "schedules_postponed": runs.failures,
        "schedules_failed": runs.given_up,
        "schedules_late": runs.late,
        "schedules_late_ms": runs.late_ms,
        "schedule_messages_sent": runs.messages,
    }


def _key(second: DueSecond) -> PartitionKey:
    return second.key


def _observed_serve(event: Mapping[str, Any], instance: Instance, stopwatch: Stopwatch) -> Answer:
    try:
        promotion, counts, failed = serve(event, instance)
    except Exception:
        logger.exception("run failed")
        raise
    facts = {
        "timers_promoted": promotion.timers,
        "records_delivered": promotion.records,
        "promotions_refused": promotion.refused,
        "late_ms": promotion.late_ms,
        "promotion_unfinished": int(not promotion.is_finished),
        **counts,
    }
    logger.info(
        "run",
        extra={**facts, "total_ms": round(stopwatch.total_ms(), 2), "storage_calls": stopwatch.storage_calls()},
    )
    return {"batchItemFailures": [{"itemIdentifier": identifier} for identifier in failed]}


handler = observed(_observed_serve)
