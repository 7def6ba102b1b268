"""A run of rows: what it leaves out, what it makes of errors, and how it puts back what they changed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from penstock import prices
from penstock.errors import AccessDeniedError, ConnectionFailedError
from penstock.prove.proof import Emulator, Proof, ProofRow, ProvenRow, Ruling, Steps, ruled
from penstock.prove.prove_run import CLEANING_SECONDS
from penstock.prove.proven_stage import ProvenStage, UnexpectedAnswerError
from penstock_core.errors import ErrorCode, PenstockError
from tests.sdk.prove.stubbed_stage import StubbedStage


def _row(name: str, ask: Callable[[ProvenStage], Proof | Steps] | None = None, **declared: Any) -> ProofRow:
    return ProofRow(name=name, expects="it is so", ask=ask or (lambda _: ruled(True, "it is so")), **declared)


def _raising(error: Exception) -> Callable[[ProvenStage], Proof]:
    def ask(_: ProvenStage) -> Proof:
        raise error

    return ask


def _told(rows: list[ProvenRow]) -> list[tuple[str, str]]:
    return [(each.row.name, each.proof.ruling.value) for each in rows]


def test_row_that_may_cost_more_than_is_left_is_left_out_and_cheaper_ones_run(stubbed: StubbedStage) -> None:
    found = stubbed.run(_row("dear", usd_max=0.6), _row("cheap", usd_max=0.1), usd_max=0.5)
    assert _told(found) == [("dear", "left out"), ("cheap", "holds")]
    assert "$0.6" in found[0].proof.fact


def test_calls_of_earlier_rows_count_against_the_budget(stubbed: StubbedStage) -> None:
    def spend(stage: ProvenStage) -> Proof:
        for _ in range(50):
            stage.append(topic)
        return ruled(True, "spent")

    topic = stubbed.stage.new_topic()
    before = stubbed.made_run().usd_max
    found = stubbed.run(_row("first", spend), _row("second", usd_max=0.0005), usd_max=before + 0.0010001)
    assert _told(found) == [("first", "holds"), ("second", "left out")]
    assert found[0].usd_max > 0.0005


def test_request_that_gets_no_answer_counts_against_the_budget(stubbed: StubbedStage) -> None:
    def cut(*_: object) -> None:
        raise ConnectionFailedError("reset", maybe_applied=True)

    answered = stubbed.stage.new_topic()
    stubbed.stage.append(answered)
    before = stubbed.stage.transport.cost(0)
    stubbed.transport.instead = cut
    with pytest.raises(ConnectionFailedError):
        stubbed.stage.append(answered)
    after = stubbed.stage.transport.cost(0)
    assert (after.requests - before.requests, len(stubbed.stage.transport.exchanges)) == (1, before.requests)
    assert after.usd_max - before.usd_max > 4 * prices.S3_PUTS.of(1), "it may have been served"


def test_money_that_a_waiting_row_may_still_spend_is_not_given_to_another(stubbed: StubbedStage) -> None:
    def wait(_: ProvenStage) -> Steps:
        yield 1
        return ruled(True, "it is so")

    found = stubbed.run(_row("waits", wait, usd_max=0.4), _row("other", usd_max=0.2), usd_max=0.5)
    assert _told(found) == [("waits", "holds"), ("other", "left out")]


def test_row_that_may_take_longer_than_is_left_is_left_out(stubbed: StubbedStage) -> None:
    found = stubbed.run(_row("long", seconds_max=50), _row("short", seconds_max=5), seconds_max=CLEANING_SECONDS + 20)
    assert _told(found) == [("long", "left out"), ("short", "holds")]


def test_row_that_waits_beyond_the_time_is_left_out_and_no_second_is_waited(stubbed: StubbedStage) -> None:
    def wait(_: ProvenStage) -> Steps:
        yield 30_000
        return ruled(True, "it is so")

    found = stubbed.run(_row("waits", wait, seconds_max=1), seconds_max=CLEANING_SECONDS + 20)
    assert _told(found) == [("waits", "left out")]
    assert stubbed.waits == []


def test_other_rows_run_while_one_waits_and_the_report_keeps_the_order(stubbed: StubbedStage) -> None:
    seen: list[str] = []

    def wait(_: ProvenStage) -> Steps:
        seen.append("begins")
        yield 1
        seen.append("ends")
        return ruled(True, "it is so")

    def note(_: ProvenStage) -> Proof:
        seen.append("between")
        return ruled(True, "it is so")

    found = stubbed.run(_row("waits", wait), _row("other", note))
    assert seen == ["begins", "between", "ends"]
    assert [each.row.name for each in found] == ["waits", "other"]


def test_calls_are_those_of_the_row_that_made_them(stubbed: StubbedStage) -> None:
    def look(stage: ProvenStage) -> Proof:
        stage.admin.list_zones()
        return ruled(bool(stage.functions), "it is so")

    found = stubbed.run(_row("looks", look), _row("rests"))
    assert found[0].calls == {
        "GET /v1/zones": 1,
        "cloudformation.DescribeStacks": 1,
        "cloudformation.ListStackResources": 1,
    }
    assert found[1].calls == {}


@pytest.mark.parametrize(
    ("error", "ruling", "fact"),
    [
        (ClientError({"Error": {"Code": "AccessDenied"}}, "GetAlias"), "unknown", "it needs lambda:GetAlias"),
        (ClientError({"Error": {"Code": "Throttling"}}, "GetAlias"), "unknown", "AWS answered Throttling to GetAlias"),
        (EndpointConnectionError(endpoint_url="https://x"), "unknown", "EndpointConnectionError"),
        (AccessDeniedError(ErrorCode.NOT_AUTHORIZED, "no right"), "unknown", "no right"),
        (PenstockError(ErrorCode.INTERNAL, "broken"), "does not hold", "broken"),
        (UnexpectedAnswerError("answered 500"), "does not hold", "answered 500"),
        (ValueError("ours"), "does not hold", "a defect of this row"),
    ],
)
def test_error_of_a_row_is_its_answer_and_the_next_row_runs(
    stubbed: StubbedStage, error: Exception, ruling: str, fact: str
) -> None:
    found = stubbed.run(_row("fails", _raising(error), action="lambda:GetAlias"), _row("next"))
    assert _told(found) == [("fails", ruling), ("next", "holds")]
    assert fact in found[0].proof.fact


def test_row_that_disturbs_is_left_out_unless_it_may(tmp_path: Path) -> None:
    row = _row("disturbs", disturbs=True)
    assert [
        _told(StubbedStage(tmp_path / name, **options).run(row))[0][1]
        for name, options in {"not": {}, "may": {"may_disturb": True}, "own": {"is_own": True}}.items()
    ] == ["left out", "holds", "holds"]


@pytest.mark.parametrize(
    ("emulator", "ruling"),
    [(Emulator.PROVES, "holds"), (Emulator.RUNS, "only on AWS"), (Emulator.LACKS, "only on AWS")],
)
def test_row_on_an_emulator_says_what_only_aws_can_answer(tmp_path: Path, emulator: Emulator, ruling: str) -> None:
    asked: list[int] = []

    def ask(_: ProvenStage) -> Proof:
        asked.append(1)
        return ruled(True, "it is so")

    [found] = StubbedStage(tmp_path, is_local=True).run(_row("row", ask, emulator=emulator))
    assert found.proof.ruling.value == ruling
    assert bool(asked) is (emulator is not Emulator.LACKS)


def test_row_that_does_not_hold_on_an_emulator_does_not_hold(tmp_path: Path) -> None:
    row = _row("row", lambda _: ruled(False, "it is not so"), emulator=Emulator.RUNS)
    assert _told(StubbedStage(tmp_path, is_local=True).run(row)) == [("row", "does not hold")]


def test_row_that_calls_aws_is_only_on_aws_where_there_is_none(tmp_path: Path) -> None:
    found = StubbedStage(tmp_path, has_account=False, is_local=True).run(_row("row", action="lambda:GetAlias"))
    assert _told(found) == [("row", "only on AWS")]


@pytest.mark.parametrize("error", [ValueError("a defect"), KeyboardInterrupt()])
def test_topics_and_zones_are_put_back_after_a_failure_in_the_middle(
    stubbed: StubbedStage, error: BaseException
) -> None:
    stubbed.service.create_topic("penstock-prove-of-a-user")

    def ask(stage: ProvenStage) -> Proof:
        stage.new_topic()
        stage.leftovers.note("zone", "c")
        stage.admin.take_zone_out("c", "penstock prove")
        assert len(stubbed.topics()) == 2
        raise error

    run = stubbed.made_run(_row("fails", ask), _row("next"))
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            run.run()
        assert _told(run.answered) == [("fails", "left out"), ("next", "left out")]
    else:
        run.run()
    assert stubbed.topics() == ["penstock-prove-of-a-user"]
    assert [each.state for each in stubbed.service.admin().list_zones() if each.zone == "c"] == ["catching_up"]
    assert run.failures == []
    assert not stubbed.path.exists()


def test_what_cannot_be_put_back_is_told_and_stays_in_the_file(stubbed: StubbedStage) -> None:
    def ask(stage: ProvenStage) -> Proof:
        stage.leftovers.note("logging", "penstock-produce", before={"LogFormat": "JSON"})
        return ruled(True, "changed")

    stubbed.aws.answers |= {
        "lambda.UpdateFunctionConfiguration": "AccessDeniedException",
        "lambda.GetFunctionConfiguration": {"LastUpdateStatus": "Successful"},
    }
    run = stubbed.made_run(_row("changes", ask))
    run.run()
    assert len(run.failures) == 1
    assert "logging penstock-produce" in run.failures[0]
    assert "penstock-produce" in stubbed.path.read_text()


def test_rulings_are_told_apart_by_their_words() -> None:
    assert len({each.value for each in Ruling}) == len(Ruling) == 5
    row = ProvenRow(row=_row("row"), proof=ruled(False, "so", late_ms=3))
    assert replace(row, seconds=1.26).to_json() == {
        "name": "row",
        "expects": "it is so",
        "verdict": "does not hold",
        "fact": "so",
        "figures": {"late_ms": 3},
        "calls": {},
        "usd_max": 0.0,
        "seconds": 1.3,
    }
