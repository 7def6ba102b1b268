"""Processes of this stack's functions are killed and frozen, and no others; targets are made ill, and well again."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.push.function_torment import FROZEN, KILLED, FunctionTorment, processes_of, tormenting_functions
from tests.chaos.push.recording_target import CONTROL, control
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
