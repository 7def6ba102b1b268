from typing import Any

import pytest
from click.shell_completion import ShellComplete

from penstock.cli import main
from penstock.errors import ConnectionFailedError
from penstock.http.http_message import Response
from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run


class _Down:
    def call(self, *_: object) -> Response:
        raise ConnectionFailedError("no answer", maybe_applied=False)

    def close(self) -> None:
        pass


def _completed(transport: Any, line: str) -> list[str]:
    *words, incomplete = line.split(" ")
    shell = ShellComplete(main, {"obj": transport}, "penstock", "_PENSTOCK_COMPLETE")
    return [each.value for each in shell.get_completions(words, incomplete)]


@pytest.fixture(autouse=True)
def names(service: MemoryPenstock) -> None:
    for topic in ("orders", "other", "payments"):
        service.create_topic(topic)
    for group in ("billing", "audit"):
        service.admin().alter_group(group, {"session_timeout_ms": 60_000})


@pytest.mark.parametrize("command", ["produce", "consume", "offsets", "topics describe", "topics delete"])
def test_topics_are_completed_by_a_call(service: MemoryPenstock, command: str) -> None:
    assert _completed(service.transport, f"{command} o") == ["orders", "other"]
    assert _completed(service.transport, f"{command} ") == ["orders", "other", "payments"]


@pytest.mark.parametrize("command", ["groups describe", "groups reset", "consume orders --group"])
def test_groups_are_completed_by_a_call(service: MemoryPenstock, command: str) -> None:
    assert _completed(service.transport, f"{command} b") == ["billing"]


def test_jobs_of_the_checkout_are_completed(service: MemoryPenstock) -> None:
    assert _completed(service.transport, "jobs run an") == ["analyze"]


def test_nothing_is_said_when_the_service_does_not_answer() -> None:
    assert _completed(_Down(), "produce o") == []
    assert _completed(_Down(), "groups describe b") == []


def test_new_names_are_not_completed(service: MemoryPenstock) -> None:
    assert _completed(service.transport, "topics create o") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_the_shell(shell: str) -> None:
    result = run(None, "completion", shell)
    assert result.exit_code == 0
    assert f"_PENSTOCK_COMPLETE={shell}_complete" in result.stdout
