import json

import pytest

from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run, run_json


def test_doctor_shows_a_table_the_timings_and_the_cost(service: MemoryPenstock) -> None:
    result = run(service.transport, "doctor")
    assert result.exit_code == 0, result.output
    assert "round trip" in result.stdout
    assert "produce of 1 KiB: p50 " in result.stdout
    assert "cost: $0.0" in result.stdout
    assert result.stdout.splitlines()[-1] == "all well"


def test_doctor_prints_json_for_programs(service: MemoryPenstock) -> None:
    document = run_json(service.transport, "doctor")
    assert document["is_well"] is True
    assert {"check", "verdict", "fact", "remedy"} == document["findings"][0].keys()
    assert document["cost"]["usd_max"] < 0.01


def test_doctor_prints_markdown_to_paste(service: MemoryPenstock) -> None:
    lines = run(service.transport, "doctor", "--markdown").stdout.splitlines()
    assert lines[:2] == ["| check | verdict | what was found | what to do |", "| --- | --- | --- | --- |"]
    assert "- all well" in lines
    rows = [line for line in lines if line.startswith("|")]
    assert all(line.count(" | ") == 3 for line in rows)


def test_doctor_exits_with_1_if_something_is_to_be_mended(service: MemoryPenstock) -> None:
    service.admin().take_zone_out("c", "moved to https://internal.example/runbook")
    result = run(service.transport, "doctor", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["is_well"] is False
    assert run(service.transport, "doctor").stdout.splitlines()[-1] == "1 to mend"


def test_doctor_exits_with_2_for_a_wrong_option(service: MemoryPenstock) -> None:
    assert run(service.transport, "doctor", "--nonsense").exit_code == 2


def test_doctor_without_a_service_is_told_how_to_name_one(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    result = run(None, "doctor")
    assert result.exit_code == 1
    assert "NOT_CONFIGURED" in result.stderr


@pytest.mark.parametrize(("option", "is_shown"), [((), False), (("--with-ids",), True)])
def test_doctor_shows_hosts_only_if_asked(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...], is_shown: bool
) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "https://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    for form in ((), ("--markdown",), ("--json",)):
        result = run(None, "doctor", "--region", "us-east-1", *form, *option)
        assert result.exit_code == 1
        assert ("127.0.0.1" in result.stdout) is is_shown
        assert "AKIA" not in result.stdout
