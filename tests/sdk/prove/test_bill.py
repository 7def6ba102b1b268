"""The bill of a run, against canned answers of Cost Explorer in the shapes of botocore's model."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from botocore.stub import Stubber

from penstock.prove.bill import TAG, RunBill, read_bill
from penstock_core.errors import ErrorCode
from tests.sdk.prove.stubbed_stage import SESSION
from tests.support.refusals import refused

BEGAN_MS = 1_795_913_600_000  # on 2026-11-29
DAY_MS = 86_400_000
REPORT: dict[str, Any] = {
    "began_at_ms": BEGAN_MS,
    "ended_at_ms": BEGAN_MS + 400_000,
    "stage": "penstock-prove-1f",
    "usd_max": 0.2,
    "is_own": True,
    "is_local": False,
}
DAYS = {"Start": "2026-11-29", "End": "2026-11-30"}


@pytest.fixture
def ce() -> Iterator[Any]:
    client = SESSION.create_client("ce", region_name="us-east-1")
    with Stubber(client) as stub:
        yield client, stub
        stub.assert_no_pending_responses()


def _asked(tag: str | None, **more: Any) -> dict[str, Any]:
    of_stage = {} if tag is None else {"Filter": {"Tags": {"Key": TAG, "Values": [tag]}}}
    return {
        "TimePeriod": DAYS,
        "Granularity": "DAILY",
        "Metrics": ["UnblendedCost"],
        "GroupBy": [{"Type": "DIMENSION", "Key": "USAGE_TYPE"}],
        **of_stage,
        **more,
    }


def _days(*lines: tuple[str, str], is_estimated: bool = False, **more: Any) -> dict[str, Any]:
    groups = [{"Keys": [name], "Metrics": {"UnblendedCost": {"Amount": usd, "Unit": "USD"}}} for name, usd in lines]
    return {"ResultsByTime": [{"TimePeriod": DAYS, "Estimated": is_estimated, "Groups": groups}], **more}


def _bill(
    ce: Any, answers: Sequence[tuple[dict[str, Any], dict[str, Any]]], report: dict[str, Any] = REPORT
) -> RunBill:
    client, stub = ce
    for answer, asked in answers:
        stub.add_response("get_cost_and_usage", answer, asked)
    return read_bill(client, report, BEGAN_MS + 3 * DAY_MS)


def test_bill_of_a_stage_of_its_own_holds_if_it_is_no_more_than_the_run_said(ce: Any) -> None:
    lines = _days(("Lambda-GB-Second", "0.01"), ("APN1-Requests", "0.10"), ("Nothing", "0"), is_estimated=True)
    found = _bill(ce, [(lines, _asked("penstock-prove-1f"))])
    assert (found.proof.ruling.value, found.is_of_stage, found.is_estimated) == ("holds", True, True)
    assert found.usd == pytest.approx(0.11)
    assert [(each.usage_type, each.usd) for each in found.lines] == [("APN1-Requests", 0.1), ("Lambda-GB-Second", 0.01)]
    assert found.to_json()["proof"]["verdict"] == "holds"


def test_bill_above_what_the_run_said_does_not_hold(ce: Any) -> None:
    found = _bill(ce, [(_days(("PUT", "0.21")), _asked("penstock-prove-1f"))])
    assert found.proof.ruling.value == "does not hold"
    assert "$0.2100" in found.proof.fact


def test_stage_that_others_call_may_cost_more_than_the_run(ce: Any) -> None:
    report = {**REPORT, "is_own": False, "stage": "penstock"}
    found = _bill(ce, [(_days(("PUT", "5")), _asked("penstock"))], report)
    assert found.proof.ruling.value == "unknown"
    assert "other callers" in found.proof.fact


def test_tag_that_is_not_activated_gives_the_accounts_day_and_proves_nothing(ce: Any) -> None:
    found = _bill(ce, [(_days(), _asked("penstock-prove-1f")), (_days(("PUT", "7.5")), _asked(None))])
    assert (found.proof.ruling.value, found.is_of_stage, found.usd) == ("unknown", False, 7.5)
    assert "update-cost-allocation-tags-status" in found.proof.fact


def test_pages_are_added_up(ce: Any) -> None:
    found = _bill(
        ce,
        [
            (_days(("PUT", "0.01"), NextPageToken="more"), _asked("penstock-prove-1f")),
            (_days(("PUT", "0.02")), _asked("penstock-prove-1f", NextPageToken="more")),
        ],
    )
    assert found.usd == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("change", "now_ms", "told"),
    [
        ({}, BEGAN_MS + DAY_MS, "ask again after 2026-12-01T00:00+00:00"),
        ({"is_local": True}, BEGAN_MS + 3 * DAY_MS, "nothing was billed"),
        ({"usd_max": None}, BEGAN_MS + 3 * DAY_MS, "this is no prove.json"),
    ],
)
def test_bill_that_cannot_be_asked_for_says_why(ce: Any, change: dict[str, Any], now_ms: int, told: str) -> None:
    error = refused(ErrorCode.INVALID_CONFIG, lambda: read_bill(ce[0], {**REPORT, **change}, now_ms))
    assert told in error.message
