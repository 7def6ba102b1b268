"""The executor of an embedded service, before and during the interpreter's exit."""

import subprocess
import sys

import pytest

from penstock.transports.exiting import ExitingExecutor
from penstock_service.adapters.system import SequentialExecutor, ThreadExecutor
from tests.support.child_process import bare_environment

AT_EXIT = """
import atexit, sys
from penstock.transports.exiting import ExitingExecutor
from penstock_service.adapters.system import SequentialExecutor, ThreadExecutor
executor = ExitingExecutor(ThreadExecutor(), SequentialExecutor())
executor.map(str, [1, 2])
def late():
    found = executor.first_of(lambda each: each * 2, [1, 2], all, 5)
    print([*executor.map(str, [1, 2])], found)
atexit.register(late)
"""


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
