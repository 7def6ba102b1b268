"""The functions that a schedule starts: a log line and metrics per run, budgets heeded, failures told."""

import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey
from penstock_core.limits import RAISE_LATE_MS
from penstock_core.log.retention_raise import with_raise
from penstock_core.zones.zone_state import ZoneStatus
from penstock_handlers import hourly, replicate, sweep, upkeep
from penstock_handlers.edge import lambda_function
from penstock_service.instance.instance import Instance
from penstock_service.segments.move_zone import move_zone_by_operator
from tests.handlers.service import CONTEXT
from tests.support.service import UNAVAILABLE, Intercepted, another_instance, new_topic, patient_instance, send, zone_of

SETTINGS = {
    "PENSTOCK_BUDGET_MS": "60000",
    "PENSTOCK_RETENTION_BUDGET_MS": "60000",
    "PENSTOCK_SCRUB_BUDGET_MS": "60000",
    "PENSTOCK_TIER_BUDGET_MS": "60000",
    "PENSTOCK_CLEAN_BUDGET_MS": "60000",
    "PENSTOCK_CLEAN_BYTES_PER_DAY": "1000000",
    "PENSTOCK_AUDIT_RETENTION_MS": "86400000",
    "PENSTOCK_LOG_START_GRACE_MS": "0",
    "PENSTOCK_SWEEP_GRACE_MS": "-1000",  # segments that are stored now are old enough
    "PENSTOCK_SCRUB_BYTES": "1000000",
    "PENSTOCK_METRICS": "all",
    "PENSTOCK_METRIC_SERIES": "10,20",
}
FUNCTIONS: dict[str, Any] = {
    **dict.fromkeys(("look_at_subscriptions", "measure", "recover_zones", "retention", "audit"), upkeep),
    **dict.fromkeys(("scrub", "tier", "clean"), hourly),
    "sweep": sweep,
}


@pytest.fixture
def instance() -> Instance:
    instance = patient_instance()
    new_topic(instance, retention_ms=-1)
    for number in range(20):
        send(instance, "orders", str(number))
    return instance


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(lambda_function.metrics.provider, "namespace", "Penstock")
    monkeypatch.setattr(lambda_function.metrics.provider, "service", "penstock")
    lambda_function.metrics.provider.clear_metrics()  # a test of this process may have left requests for the next line


def run(monkeypatch: pytest.MonkeyPatch, task: str, instance: Instance) -> dict[str, Any]:
    """As Lambda does, which takes JSON only."""
    monkeypatch.setattr(lambda_function, "instance", lambda: instance)
    done: dict[str, Any] = json.loads(json.dumps(FUNCTIONS[task].handler({"task": task}, CONTEXT)))
    return done


def metrics_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The metrics that were published, with their values."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    names = [(line, metric["Name"]) for line in lines for metric in line["_aws"]["CloudWatchMetrics"][0]["Metrics"]]
    return {name: line[name] for line, name in names}


@pytest.mark.parametrize("task", FUNCTIONS)
def test_run_leaves_one_log_line_with_its_figures_and_no_metric(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    instance: Instance,
    task: str,
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    done = run(monkeypatch, task, instance)
    [line] = [record for record in caplog.records if record.getMessage() == "run"]
    counted = {name: value for name, value in done.items() if type(value) is int}
    assert len(counted) >= (5 if task != "audit" else 3)
    assert getattr(line, "task", "sweep") == task
    assert {name: getattr(line, name) for name in counted} == counted
    assert line.total_ms >= 0  # type: ignore[attr-defined]  # of the run's line
    assert metrics_of(capsys) == {}


@pytest.mark.parametrize("event", [{}, {"task": "sweep"}, {"task": None}, {"detail-type": "Scheduled Event"}])
def test_event_that_names_no_task_of_the_function_is_refused(
    monkeypatch: pytest.MonkeyPatch, instance: Instance, event: dict[str, Any]
) -> None:
    monkeypatch.setattr(lambda_function, "instance", lambda: instance)
    with pytest.raises(ValueError, match="recover_zones, measure, audit"):
        upkeep.handler(event, CONTEXT)


def test_zone_that_stays_behind_is_the_metric_that_the_alarm_watches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], instance: Instance
) -> None:
    move_zone_by_operator(instance, "b", ZoneStatus.CATCHING_UP, "look it over")
    for zone in range(3):
        zone_of(instance, zone).segments.clear()
    run(monkeypatch, "recover_zones", instance)
    assert metrics_of(capsys)["zones_behind"] == [1.0]


@pytest.mark.parametrize("task", [name for name in FUNCTIONS if name != "audit"])  # which reads none of these
def test_run_that_raises_is_logged_and_raised_so_that_lambda_reports_it(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    instance: Instance,
    task: str,
) -> None:
    def refuse(_original: object, *_arguments: object) -> None:
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "it does not answer")

    # recover_zones reads no topics while every zone is in sync.
    failing = another_instance(
        instance,
        topics=Intercepted(instance.stores.topics, list=refuse),
        zone_states=Intercepted(instance.stores.zone_states, get=refuse),
        push=Intercepted(instance.stores.push, list_subscriptions=refuse),
    )
    with pytest.raises(PenstockError, match="it does not answer"):
        run(monkeypatch, task, failing)
    messages = [record.getMessage() for record in caplog.records]
    assert messages.count("run failed") == 1
    assert "run" not in messages


def test_retention_out_of_time_says_so_and_goes_on_there(monkeypatch: pytest.MonkeyPatch, instance: Instance) -> None:
    monkeypatch.setenv("PENSTOCK_RETENTION_BUDGET_MS", "0")
    done = run(monkeypatch, "retention", instance)
    assert (done["partitions_checked"], done["retention_unfinished"]) == (0, 1)
    assert instance.stores.cursors.get("retention") == "orders#0"
    monkeypatch.setenv("PENSTOCK_RETENTION_BUDGET_MS", "60000")
    done = run(monkeypatch, "retention", instance)
    assert (done["partitions_checked"], done["retention_unfinished"]) == (1, 0)
    assert instance.stores.cursors.get("retention") is None


def test_retention_heeds_the_grace_it_is_set(monkeypatch: pytest.MonkeyPatch, instance: Instance) -> None:
    key = PartitionKey(instance.topic_cache.get("orders").topic_id, Partition(0))
    instance.stores.log.raise_log_start(key, Offset(18))
    monkeypatch.setenv("PENSTOCK_LOG_START_GRACE_MS", "60000")
    assert [run(monkeypatch, "retention", instance)["pages_deleted"] for _ in range(3)] == [0, 0, 0]
    monkeypatch.setenv("PENSTOCK_LOG_START_GRACE_MS", "0")
    assert sum(run(monkeypatch, "retention", instance)["pages_deleted"] for _ in range(2)) == 1


def test_retention_tells_of_partitions_that_fail_and_does_the_others(
    monkeypatch: pytest.MonkeyPatch, instance: Instance
) -> None:
    new_topic(instance, "spoilt", retention_ms=-1)
    bad = instance.topic_cache.get("spoilt").topic_id
    for topic in ("orders", "spoilt"):
        key = PartitionKey(instance.topic_cache.get(topic).topic_id, Partition(0))
        send(instance, topic, "x")
        instance.stores.log.raise_log_start(key, Offset(1))

    def note(original: Any, key: PartitionKey, *arguments: Any) -> None:
        if key.topic_id == bad:
            raise UNAVAILABLE
        original(key, *arguments)

    failing = another_instance(instance, log=Intercepted(instance.stores.log, note_log_start=note))
    done = run(monkeypatch, "retention", failing)
    assert (done["partitions_checked"], done["retention_failed"]) == (2, 1)
    [orders] = instance.stores.log.heads(
        [PartitionKey(instance.topic_cache.get("orders").topic_id, Partition(0))]
    ).values()
    assert orders.noted_log_start == 1


def test_sweep_out_of_time_for_the_index_raises_and_removes_nothing(
    monkeypatch: pytest.MonkeyPatch, instance: Instance
) -> None:
    zone_of(instance, 0).put(next(iter(zone_of(instance, 1).segments)), b"x", 0)
    before = [len(zone_of(instance, zone).segments) for zone in range(3)]
    monkeypatch.setenv("PENSTOCK_BUDGET_MS", "0")
    with pytest.raises(PenstockError, match="nothing was swept"):
        run(monkeypatch, "sweep", instance)
    assert [len(zone_of(instance, zone).segments) for zone in range(3)] == before


def test_sweep_heeds_its_grace_and_tells_of_a_zone_that_fails(
    monkeypatch: pytest.MonkeyPatch, instance: Instance
) -> None:
    key = PartitionKey(instance.topic_cache.get("orders").topic_id, Partition(0))
    instance.stores.log.raise_log_start(key, Offset(20))
    run(monkeypatch, "retention", instance)  # notes the log start
    monkeypatch.setenv("PENSTOCK_SWEEP_GRACE_MS", "60000")
    assert run(monkeypatch, "sweep", instance)["objects_deleted"] == 0
    monkeypatch.setenv("PENSTOCK_SWEEP_GRACE_MS", "-1000")
    zone_of(instance, 1).is_down = True
    done = run(monkeypatch, "sweep", instance)
    assert (done["objects_deleted"], done["sweep_failed"]) == (2 * 20, 1)
    zone_of(instance, 1).is_down = False
    done = run(monkeypatch, "sweep", instance)
    assert (done["objects_deleted"], done["sweep_failed"], done["objects_with_old_keys"]) == (20, 0, 0)
    assert done["folders_swept"] > 0


def test_sweep_tells_of_objects_that_are_older_than_the_index(
    monkeypatch: pytest.MonkeyPatch, instance: Instance
) -> None:
    empty = patient_instance()
    done = run(
        monkeypatch, "sweep", another_instance(instance, topics=empty.stores.topics, cursors=empty.stores.cursors)
    )
    assert (done["objects_deleted"], done["objects_foreign"]) == (0, 3 * 20)


def test_sweep_tells_of_a_raise_that_no_walk_has_ended_because_retention_may_have_stopped(
    monkeypatch: pytest.MonkeyPatch, instance: Instance
) -> None:
    topic = instance.stores.topics.list()[0]
    for age_ms, late in ((RAISE_LATE_MS - 60_000, 0), (RAISE_LATE_MS + 60_000, 1)):
        noted = with_raise(replace(topic, retention_raise=None), instance.clock.now_ms() - age_ms)
        instance.stores.topics.replace(topic, noted)
        topic = noted
        assert run(monkeypatch, "sweep", instance)["raises_late"] == late


def test_scrub_heeds_how_much_it_may_read_and_goes_on_there(
    monkeypatch: pytest.MonkeyPatch, instance: Instance
) -> None:
    monkeypatch.setenv("PENSTOCK_SCRUB_BYTES", "1")
    done = run(monkeypatch, "scrub", instance)
    assert not done["is_finished"]
    assert 0 < done["refs"] < 20
    monkeypatch.setenv("PENSTOCK_SCRUB_BYTES", SETTINGS["PENSTOCK_SCRUB_BYTES"])
    rest = run(monkeypatch, "scrub", instance)
    assert rest["is_finished"]
    assert done["refs"] + rest["refs"] == 20


def test_scrub_tells_of_what_it_could_not_heal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], instance: Instance
) -> None:
    zone_of(instance, 2).segments.clear()
    zone_of(instance, 2).is_down = True
    done = run(monkeypatch, "scrub", instance)
    assert done["failures"] == 20
    assert metrics_of(capsys)["scrub_failed"] == [20.0]


def test_replicate_leaves_one_log_line_and_its_telemetry_as_metrics(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    instance: Instance,
) -> None:
    monkeypatch.setattr(lambda_function, "instance", lambda: instance)
    event = {"Records": [{"eventSource": "aws:sqs", "messageId": "m1", "body": "broken"}]}
    assert replicate.handler(event, CONTEXT) == {"batchItemFailures": [{"itemIdentifier": "m1"}]}
    [line] = [record for record in caplog.records if record.getMessage() == "repair"]
    assert [getattr(line, name) for name in ("records", "partitions", "failed")] == [1, [], 1]
    metrics = metrics_of(capsys)
    assert (metrics["repairs_invoked"], metrics["repair_failed"]) == ([1.0], [1.0])
