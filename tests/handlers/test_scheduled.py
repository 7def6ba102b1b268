"""The functions that a schedule starts: a log line and metrics per run, budgets heeded, failures told."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from handlers import entry, keeper, retention, scheduled, scrub, sweep
from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition
from penstock_core.keys import PartitionKey
from tests.broker.setting import UNAVAILABLE, Intercepted, another_instance, new_topic, patient_broker, send, zone_of

CONTEXT = SimpleNamespace(
    function_name="penstock",
    function_version="1",
    memory_limit_in_mb=512,
    invoked_function_arn="arn:aws:lambda:eu-central-1:1:function:penstock",
    aws_request_id="request-1",
)
SETTINGS = {
    "PENSTOCK_BUDGET_MS": "60000",
    "PENSTOCK_LOG_START_GRACE_MS": "0",
    "PENSTOCK_SWEEP_GRACE_MS": "-1000",  # what is stored now is old enough
    "PENSTOCK_SCRUB_BYTES": "1000000",
}
FUNCTIONS = pytest.mark.parametrize("function", [keeper, retention, scrub, sweep], ids=lambda each: each.__name__)


@pytest.fixture
def broker() -> Broker:
    broker = patient_broker()
    new_topic(broker, retention_ms=-1)
    for number in range(20):
        send(broker, "orders", str(number))
    return broker


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    for metrics in (entry._metrics, scheduled._metrics):
        monkeypatch.setattr(metrics.provider, "namespace", "Penstock")
        monkeypatch.setattr(metrics.provider, "service", "penstock")


def run(monkeypatch: pytest.MonkeyPatch, function: Any, broker: Broker) -> dict[str, Any]:
    """As Lambda does, which takes JSON only."""
    monkeypatch.setattr(scheduled, "broker", lambda: broker)
    done: dict[str, Any] = json.loads(json.dumps(function.handler({}, CONTEXT)))
    return done


def metrics_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    [metrics] = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    return dict(metrics)


@FUNCTIONS
def test_run_leaves_one_log_line_and_its_counts_as_metrics(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    broker: Broker,
    function: Any,
) -> None:
    done = run(monkeypatch, function, broker)
    [line] = [record for record in caplog.records if record.getMessage() == "run"]
    metrics = metrics_of(capsys)
    assert metrics["run_duration"][0] >= 0
    counted = {name: value for name, value in done.items() if type(value) is int}
    assert len(counted) >= 5
    for name, value in counted.items():
        assert getattr(line, name) == value
        assert metrics[name] == [float(value)]


@FUNCTIONS
def test_run_that_raises_is_logged_measured_and_raised_so_that_lambda_counts_an_error(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    broker: Broker,
    function: Any,
) -> None:
    def refuse(_original: object, *_arguments: object) -> None:
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "it does not answer")

    # The keeper reads no topics while every zone is in sync.
    failing = another_instance(
        broker,
        topics=Intercepted(broker.topics, list=refuse),
        zone_states=Intercepted(broker.zone_states, get=refuse),
    )
    with pytest.raises(PenstockError, match="it does not answer"):
        run(monkeypatch, function, failing)
    messages = [record.getMessage() for record in caplog.records]
    assert messages.count("run failed") == 1
    assert "run" not in messages
    assert metrics_of(capsys)["run_duration"][0] >= 0


def test_retention_out_of_time_says_so_and_goes_on_there(monkeypatch: pytest.MonkeyPatch, broker: Broker) -> None:
    monkeypatch.setenv("PENSTOCK_BUDGET_MS", "0")
    done = run(monkeypatch, retention, broker)
    assert (done["partitions_checked"], done["retention_unfinished"]) == (0, 1)
    assert broker.cursors.get("retention") == "orders#0"
    monkeypatch.setenv("PENSTOCK_BUDGET_MS", "60000")
    done = run(monkeypatch, retention, broker)
    assert (done["partitions_checked"], done["retention_unfinished"]) == (1, 0)
    assert broker.cursors.get("retention") is None


def test_retention_heeds_the_grace_it_is_set(monkeypatch: pytest.MonkeyPatch, broker: Broker) -> None:
    key = PartitionKey(broker.directory.find("orders").topic_id, Partition(0))
    broker.log.raise_log_start(key, Offset(18))
    monkeypatch.setenv("PENSTOCK_LOG_START_GRACE_MS", "60000")
    assert [run(monkeypatch, retention, broker)["pages_deleted"] for _ in range(3)] == [0, 0, 0]
    monkeypatch.setenv("PENSTOCK_LOG_START_GRACE_MS", "0")
    assert sum(run(monkeypatch, retention, broker)["pages_deleted"] for _ in range(2)) == 1


def test_retention_tells_of_partitions_that_fail_and_does_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broker: Broker
) -> None:
    new_topic(broker, "spoilt", retention_ms=-1)
    bad = broker.directory.find("spoilt").topic_id
    for topic in ("orders", "spoilt"):
        key = PartitionKey(broker.directory.find(topic).topic_id, Partition(0))
        send(broker, topic, "x")
        broker.log.raise_log_start(key, Offset(1))

    def note(original: Any, key: PartitionKey, *arguments: Any) -> None:
        if key.topic_id == bad:
            raise UNAVAILABLE
        original(key, *arguments)

    failing = another_instance(broker, log=Intercepted(broker.log, note_log_start=note))
    done = run(monkeypatch, retention, failing)
    assert (done["partitions_checked"], done["retention_failed"]) == (2, 1)
    assert metrics_of(capsys)["retention_failed"] == [1.0]
    [orders] = broker.log.heads([PartitionKey(broker.directory.find("orders").topic_id, Partition(0))]).values()
    assert orders.settling_offset == 1


def test_sweep_out_of_time_for_the_index_raises_and_removes_nothing(
    monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    zone_of(broker, 0).put(next(iter(zone_of(broker, 1).segments)), b"x", 0)
    before = [len(zone_of(broker, zone).segments) for zone in range(3)]
    monkeypatch.setenv("PENSTOCK_BUDGET_MS", "0")
    with pytest.raises(PenstockError, match="nothing was swept"):
        run(monkeypatch, sweep, broker)
    assert [len(zone_of(broker, zone).segments) for zone in range(3)] == before


def test_sweep_heeds_its_grace_and_tells_of_a_zone_that_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broker: Broker
) -> None:
    key = PartitionKey(broker.directory.find("orders").topic_id, Partition(0))
    broker.log.raise_log_start(key, Offset(20))
    run(monkeypatch, retention, broker)  # notes the log start
    monkeypatch.setenv("PENSTOCK_SWEEP_GRACE_MS", "60000")
    assert run(monkeypatch, sweep, broker)["objects_deleted"] == 0
    monkeypatch.setenv("PENSTOCK_SWEEP_GRACE_MS", "-1000")
    zone_of(broker, 1).is_down = True
    capsys.readouterr()
    done = run(monkeypatch, sweep, broker)
    assert (done["prefixes_swept"], done["objects_deleted"], done["sweep_failed"]) == (256, 2 * 20, 256)
    assert metrics_of(capsys)["sweep_failed"] == [256.0]
    zone_of(broker, 1).is_down = False
    done = run(monkeypatch, sweep, broker)
    assert (done["objects_deleted"], done["sweep_failed"]) == (20, 0)


def test_sweep_tells_of_objects_that_are_older_than_the_index(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broker: Broker
) -> None:
    empty = patient_broker()
    done = run(monkeypatch, sweep, another_instance(broker, topics=empty.topics, cursors=empty.cursors))
    assert (done["objects_deleted"], done["objects_foreign"]) == (0, 3 * 20)
    assert metrics_of(capsys)["objects_foreign"] == [60.0]


def test_scrub_heeds_how_much_it_may_read_and_goes_on_there(monkeypatch: pytest.MonkeyPatch, broker: Broker) -> None:
    monkeypatch.setenv("PENSTOCK_SCRUB_BYTES", "1")
    done = run(monkeypatch, scrub, broker)
    assert not done["is_finished"]
    assert 0 < done["refs"] < 20
    monkeypatch.setenv("PENSTOCK_SCRUB_BYTES", SETTINGS["PENSTOCK_SCRUB_BYTES"])
    rest = run(monkeypatch, scrub, broker)
    assert rest["is_finished"]
    assert done["refs"] + rest["refs"] == 20


def test_scrub_tells_of_what_it_could_not_heal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broker: Broker
) -> None:
    zone_of(broker, 2).segments.clear()
    zone_of(broker, 2).is_down = True
    done = run(monkeypatch, scrub, broker)
    assert done["failures"] == 20
    metrics = metrics_of(capsys)
    assert (metrics["scrub_failures"], metrics["scrub_failed"]) == ([20.0], [20.0])
