"""The timeouts of the functions that matter come from the emulator's log into a history."""

from datetime import datetime
from pathlib import Path

from tests.chaos.exchanges.exchange import history_ns
from tests.chaos.push.timeouts import tell_timeouts
from tests.history.model.operations import read_operations

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
