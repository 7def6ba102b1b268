"""Embedded services of a process and of its children by fork(). The executor of an embedded service, before and during
the interpreter's exit.
"""

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from penstock.transports import embedded
from penstock.transports.embedded import ExitingExecutor
from penstock.transports.embedded_storage import EmbeddedStage
from penstock_core.acls.tokens import AclSettings
from penstock_service.adapters.aws import Storage
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.adapters.system import SequentialExecutor, ThreadExecutor
from tests.support.child_process import bare_environment

STAGE = EmbeddedStage(
    storage=Storage(topics_table="t", log_table="l", groups_table="g", zones=(), archive="a", repair_queue_url=None),
    acls=AclSettings(),
)
AT_EXIT = """
import atexit, sys
from penstock.transports.embedded import ExitingExecutor
from penstock_service.adapters.system import SequentialExecutor, ThreadExecutor
executor = ExitingExecutor(ThreadExecutor(), SequentialExecutor())
executor.map(str, [1, 2])
def late():
    found = executor.first_of(lambda each: each * 2, [1, 2], all, 5)
    print([*executor.map(str, [1, 2])], found)
atexit.register(late)
"""


def test_child_opens_a_service_when_a_thread_of_its_parent_was_opening_one(monkeypatch: pytest.MonkeyPatch) -> None:
    is_opening, goes_on = threading.Event(), threading.Event()
    parent = os.getpid()

    def slow(*_: Any) -> Any:
        if os.getpid() == parent:
            is_opening.set()
            assert goes_on.wait(60)
        return memory_instance()

    monkeypatch.setattr(embedded, "aws_instance", slow)
    monkeypatch.setattr(embedded, "_services", {})
    thread = threading.Thread(target=embedded._service, args=(STAGE,))
    thread.start()
    assert is_opening.wait(60)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # ends a child that hangs
        is_open = False
        try:
            is_open = isinstance(embedded._service(STAGE), embedded.EmbeddedService)
        finally:
            os._exit(0 if is_open else 1)
    goes_on.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_executor_is_the_one_with_threads_when_the_interpreter_goes_on() -> None:
    threads = ThreadExecutor()
    executor = ExitingExecutor(threads, SequentialExecutor())
    try:
        assert [*executor.map(str, [1, 2])] == ["1", "2"]
        assert executor.first_of(str, [1, 2], lambda found: None not in found, 5) == ["1", "2"]
        assert executor._current() is threads
    finally:
        threads.close()


@pytest.mark.slow
def test_executor_answers_when_the_interpreter_exits() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT], capture_output=True, check=False, env=bare_environment(), text=True
    )
    assert done.stdout.strip() == "['1', '2'] [2, 4]", done.stderr
