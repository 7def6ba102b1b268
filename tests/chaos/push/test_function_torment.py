"""Processes of this stack's functions are killed and frozen, and no others; targets are made ill, and well again.

The timeouts of the functions that matter come from the emulator's log into a history.

The history is told of each storage call of a delivery that fails, and of no other.
"""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from tests.chaos.exchanges.exchange import history_ns
from tests.chaos.push.delivery_watch import DeliveryWatch, is_failure
from tests.chaos.push.function_torment import FROZEN, KILLED, FunctionTorment, processes_of, tormenting_functions
from tests.chaos.push.recording_target import CONTROL, control
from tests.chaos.push.timeouts import tell_timeouts
from tests.end_to_end.fault_proxy import Call, Delay, Fault, Reset
from tests.history.model.operations import read_operations
from tests.history.recorder import Recorder
from tests.support.deadlines import until

HERE, ELSEWHERE = "http://127.0.0.1:1", "http://127.0.0.1:2"


@contextmanager
def running(name: str, endpoint_url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process as the emulator starts one for a function."""
    variables = {"AWS_LAMBDA_FUNCTION_NAME": name, "AWS_ENDPOINT_URL": endpoint_url}
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**os.environ, **variables}
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def torment(folder: Path, name: str, freeze_share: float, spared_s: float = 0.0) -> FunctionTorment:
    control(folder / CONTROL, {})
    return FunctionTorment(
        endpoint_url=HERE,
        victims={name: "in-order"},
        targets=("in-order",),
        control=folder / CONTROL,
        each_s=(0.0, 0.05),
        stands_s=(0.0, 0.05),
        freeze_share=freeze_share,
        ill_each_s=(0.0, 0.05),
        ill_s=(0.0, 0.05),
        spared_s=spared_s,
    )


@pytest.mark.parametrize(("freeze_share", "what"), [(0.0, KILLED), (1.0, FROZEN)])
def test_processes_of_this_stack_are_struck_and_the_history_is_told(
    tmp_path: Path, freeze_share: float, what: str
) -> None:
    name, stream = f"victim-{os.getpid()}", io.BytesIO()
    with running(name, HERE) as victim, running(name, ELSEWHERE) as other:
        until(lambda: processes_of(name, HERE) == [victim.pid])
        with tormenting_functions(torment(tmp_path, name, freeze_share), 1, Recorder(stream)) as done:
            until(lambda: done[f"{name} {what}"] > 0)
        assert victim.wait() != 0 if what == KILLED else victim.poll() is None
        assert other.poll() is None
    operation = next(read_operations(stream.getvalue().splitlines()))
    assert (operation.function, operation.group) == ("disturb", "in-order")


@pytest.mark.parametrize("why", ["young", "stopped"])
def test_process_is_spared_while_it_starts_and_while_it_stands_still(tmp_path: Path, why: str) -> None:
    name = f"spared-{os.getpid()}"
    with running(name, HERE) as process:
        until(lambda: processes_of(name, HERE) == [process.pid])
        if why == "stopped":
            process.send_signal(signal.SIGSTOP)
            until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        plan = torment(tmp_path, name, 0.0, spared_s=600.0 if why == "young" else 0.0)
        with tormenting_functions(plan, 1, Recorder(io.BytesIO())) as done:
            until(lambda: sum(done.values()) > 2)  # the targets have been ill for some times
        assert not done[f"{name} {KILLED}"]
        assert process.poll() is None


def test_targets_are_ill_for_a_while_and_well_at_the_end(tmp_path: Path) -> None:
    plan = torment(tmp_path, "nobody", 0.0)
    with tormenting_functions(plan, 1, Recorder(io.BytesIO())) as done:
        until(lambda: sum(done.values()) > 1)
    assert json.loads((tmp_path / CONTROL).read_text()) == {}


LOG = """\
2100-11-23 18:57:39 WARNING [lambda_runtime] Lambda penstock-fetch timed out after 28s — killing worker
2100-11-23 18:57:42 WARNING [lambda_runtime] Lambda penstock-deliver timed out after 64s — killing worker
Task timed out after 10.00 seconds
2100-11-23 18:57:41 WARNING [lambda_runtime] Lambda chaos-in-order timed out after 30s — killing worker
"""


def test_timeouts_of_the_named_functions_are_told_in_order_of_time(tmp_path: Path) -> None:
    log, history = tmp_path / "emulator.log", tmp_path / "timeouts.history.jsonl"
    log.write_text(LOG)
    assert tell_timeouts(log, history, ("penstock-deliver", "chaos-in-order")) == 2
    operations = [*read_operations(history.read_bytes().splitlines())]
    assert [each.function for each in operations] == ["disturb", "disturb"]
    at_ms = int(datetime.fromisoformat("2100-11-23T18:57:41").timestamp() * 1_000)
    assert [each.end_ns for each in operations] == [history_ns(at_ms), history_ns(at_ms + 1_000)]


UPDATE = Call(service="dynamodb", operation="UpdateItem")
GET = Call(service="s3", operation="GetObject", bucket="a")
PUT = Call(service="s3", operation="PutObject", bucket="a")


@pytest.mark.parametrize(
    ("status", "body", "is_one"),
    [
        (200, b"", False),
        (400, b'{"__type": "ConditionalCheckFailedException"}', False),
        (400, b'{"__type": "TransactionCanceled", "reasons": ["ConditionalCheckFailed", "None"]}', False),
        (400, b'{"__type": "TransactionCanceled", "reasons": ["ConditionalCheckFailed", "TransactionConflict"]}', True),
        (412, b"<Error><Code>PreconditionFailed</Code></Error>", False),
        (400, b'{"__type": "ThrottlingException"}', True),
        (500, b"", True),
        (503, b"SlowDown", True),
    ],
)
def test_refused_condition_is_no_failure_and_the_rest_is(status: int, body: bytes, is_one: bool) -> None:
    assert is_failure(status, body) == is_one


@pytest.mark.parametrize(
    ("call", "fault", "is_told"),
    [
        (UPDATE, Reset(is_applied=True), True),
        (UPDATE, None, False),
        (UPDATE, Delay(seconds=1), False),
        (GET, Reset(is_applied=False), False),
        (PUT, Reset(is_applied=False), True),
    ],
)
def test_faults_that_may_lose_an_answer_are_told(call: Call, fault: Fault | None, is_told: bool) -> None:
    stream = io.BytesIO()
    watch = DeliveryWatch(lambda _: fault, Recorder(stream))
    assert watch.decide(call) is fault
    watch.told(call, 200, b"")
    assert [each.function for each in read_operations(stream.getvalue().splitlines())] == ["disturb"] * is_told


@pytest.mark.parametrize(("answer", "took_s"), [((400, b"ThrottlingException"), 0.1), ((200, b"{}"), 4.5)])
def test_answer_that_is_an_error_or_late_is_told(answer: tuple[int, bytes], took_s: float) -> None:
    stream, times = io.BytesIO(), iter([0.0, took_s])
    watch = DeliveryWatch(lambda _: None, Recorder(stream), lambda: next(times))
    watch.decide(UPDATE)
    watch.told(UPDATE, *answer)
    [operation] = read_operations(stream.getvalue().splitlines())
    assert (operation.function, operation.group) == ("disturb", None)
