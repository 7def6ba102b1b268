import json

import pytest

from penstock.errors import ConnectionFailedError
from penstock_import.copying.group_mover import GroupMove
from penstock_import.report import Report

_MOVE = GroupMove(group="billing", offsets={0: 7, 1: 9}, further=(2,), waiting=(3,))


def _tell(report: Report) -> None:
    report.resumed({0: 5}, is_first=True)
    report.drained()
    report.moved([_MOVE, GroupMove(group="mail", refusal="it has members\x1b[31m")])
    report.waits(ConnectionFailedError("no answer", maybe_applied=False), 1.25)


def test_report_prints_sentences_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    with Report("orders to bought", as_json=False) as report:
        _tell(report)
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert "follows new records until you stop it" in lines[1]
    assert lines[2] == (
        "group billing goes on at 0=7, 1=9; it had gone further in partition 2 (--groups-may-go-back sets it back); "
        "its offsets in partition 3 are not copied yet"
    )
    assert "\x1b" not in lines[3]
    assert "tries again in 1.2 s" in lines[4]


def test_report_prints_events_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with Report("orders to bought", as_json=True) as report:
        _tell(report)
        report.copied(10, 0, 3)  # a second has not passed: no event
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["event"] for each in events] == ["started", "drained", "group", "group", "retry"]
    assert events[0]["positions"] == {"0": 5}
    assert (events[2]["offsets"], events[2]["further"], events[2]["refusal"]) == ({"0": 7, "1": 9}, [2], None)
    assert events[4]["error"]["code"] == "CONNECTION_FAILED"
