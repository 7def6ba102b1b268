"""The tables of commands, on wide and narrow terminals and in pipes."""

import io

import pytest
from rich.console import Console

from penstock.cli.tables import plain_lines, print_fitting
from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run, run_json


def test_list_of_topics_shows_the_settings_that_differ_from_their_defaults(service: MemoryPenstock) -> None:
    service.create_topic("plain")
    service.create_topic("short", config={"retention_ms": 3_600_000})
    shown = run(service.transport, "topics", "list").stdout
    assert "retention_ms=3600000" in shown
    assert shown.count("=") == 1
    assert max(map(len, shown.splitlines())) <= 100
    assert "settings: all by default\n" in run(service.transport, "topics", "describe", "plain").stdout


def test_description_of_a_topic_shows_the_stored_bytes_of_each_partition(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    with service.producer() as producer:
        producer.send("orders", b"x" * 100)
    [told] = run_json(service.transport, "topics", "describe", "orders")["offsets"]
    assert told["stored_bytes"] > 0
    shown = run(service.transport, "topics", "describe", "orders").stdout
    assert "bytes" in shown
    assert f" {told['stored_bytes']}" in shown


def test_groups_are_shown_without_epochs(service: MemoryPenstock) -> None:
    service.admin().alter_group("g", {"session_timeout_ms": 60_000})
    shown = run(service.transport, "groups", "list").stdout
    assert "session_timeout_ms=60000" in shown
    assert shown.count("=") == 1
    described = run(service.transport, "groups", "describe", "g").stdout
    assert "epoch" not in shown + described
    assert "settings: session_timeout_ms=60000;" in described
    assert "epoch" in run_json(service.transport, "groups", "describe", "g")


def test_setting_of_a_time_may_be_a_duration(service: MemoryPenstock) -> None:
    created = run_json(service.transport, "topics", "create", "a", "--config", "retention_ms=7d")
    assert created["config"]["retention_ms"] == 7 * 86_400_000
    altered = run_json(service.transport, "topics", "alter", "a", "--config", "retention_ms=forever")
    assert altered["config"]["retention_ms"] == -1
    group = run_json(service.transport, "groups", "alter", "g", "--config", "session_timeout_ms=60s")
    assert group["config"]["session_timeout_ms"] == 60_000


@pytest.mark.parametrize("setting", ["retention_ms=7w", "retention_ms=soon", "retention_ms"])
def test_setting_that_is_no_duration_is_wrong_usage(service: MemoryPenstock, setting: str) -> None:
    assert run(service.transport, "topics", "create", "a", "--config", setting).exit_code == 2


COLUMNS = ("letter", "from", "by", "tries", "time", "reason")
ROW = [
    "0 20",
    "invoices[0] 16",
    "workers",
    "5",
    "2026-11-29T23:29:06Z",
    "deliveries: ValueError: the amount is no number",
]


def printed(width: int, *rows: list[str]) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    print_fitting(console, COLUMNS, rows)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_wide_terminal_gets_frames() -> None:
    lines = printed(140, ROW)
    assert lines[0].startswith("┏")
    assert "ValueError: the amount is no number" in lines[3]


def test_narrow_terminal_gets_columns_and_folds_the_last_one_only() -> None:
    lines = printed(100, ROW)
    assert lines[0].split() == list(COLUMNS)
    assert lines[1].startswith("0 20    invoices[0] 16  workers      5  2026-11-29T23:29:06Z  deliveries:")
    assert "".join(line.strip() for line in lines[1:]).replace(" ", "").endswith("ValueError:theamountisnonumber")
    assert max(map(len, lines)) <= 100


def test_terminal_without_room_for_columns_gets_a_line_for_each_cell() -> None:
    lines = printed(60, ROW, ROW)
    assert lines[:3] == ["letter  0 20", "  from  invoices[0] 16", "    by  workers"]
    assert lines.count("") == 2
    assert max(map(len, lines)) <= 60


def test_pipe_gets_plain_columns_without_blanks_at_the_ends() -> None:
    lines = [*plain_lines(("topic", "records", "reason"), [["orders", "7", ""], ["é注", "1,000", "x " * 5_000]])]
    assert lines == ["topic   records  reason", "orders        7", f"é注       1,000  {'x ' * 5_000}".rstrip()]


def test_many_rows_have_frames_no_more_and_fold_where_the_terminal_is_too_narrow() -> None:
    rows = [ROW] * 1_001
    assert len(printed(140, *rows)) == 1_002
    assert max(map(len, printed(100, *rows))) <= 100


def test_no_rows_are_a_header() -> None:
    assert printed(45) == ["  ".join(COLUMNS)]
