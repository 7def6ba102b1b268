"""The row of calls of each noun: it holds on a service in memory, finds a refusal, and leaves no group behind."""

from pathlib import Path

import pytest

from penstock.http.http_message import Response
from penstock.prove.rows.nouns import noun_rows, nouns
from tests.sdk.prove.stubbed_stage import StubbedStage, refusal

ROUND = "dynamodb.GetItem=2,dynamodb.UpdateItem=1,s3.GetObject=1"


def _rounds(stubbed: StubbedStage, calls: str) -> None:
    """Each acquire tells these calls."""

    class Calls(dict[str, str]):
        def get(self, path: str, default: str = "") -> str:  # type: ignore[override]
            return calls if "/share-groups/" in path else default

    stubbed.transport.calls = Calls()


def test_calls_of_each_noun_hold_and_leave_no_group(stubbed: StubbedStage) -> None:
    _rounds(stubbed, ROUND)
    found = stubbed.ask(nouns)
    assert found.ruling.value == "holds", found.fact
    assert (found.figures["failed"], found.figures["round_calls_too_many"]) == (0, 0)
    assert int(found.figures["calls"]) == 23
    admin = stubbed.service.admin()
    assert (admin.list_groups(), admin.list_share_groups()) == ([], [])


def test_stage_of_its_own_gets_a_transaction_too(tmp_path: Path) -> None:
    stubbed = StubbedStage(tmp_path, is_own=True)
    _rounds(stubbed, ROUND)
    assert stubbed.ask(nouns).ruling.value == "holds"
    assert "POST /v1/transactions" in stubbed.transport.sent


def test_stage_that_others_use_gets_no_transactional_id(stubbed: StubbedStage) -> None:
    stubbed.ask(nouns)
    assert not any("producers" in each or "transactions" in each for each in stubbed.transport.sent)


@pytest.mark.parametrize("path", ["/offsets", "/v1/share-groups/", "/v1/quotas"])
def test_call_that_fails_is_found(stubbed: StubbedStage, path: str) -> None:
    def instead(_: str, asked: str, __: bytes) -> Response | None:
        return refusal(503, "STORAGE_UNAVAILABLE") if path in asked and "DELETE" not in _ else None

    stubbed.transport.instead = instead
    [found] = stubbed.run(*noun_rows())
    assert found.proof.ruling.value == "does not hold"
    assert "503 STORAGE_UNAVAILABLE" in found.proof.fact
    assert stubbed.topics() == []
    assert not stubbed.path.exists()


def test_round_of_a_share_group_that_reads_more_is_found(stubbed: StubbedStage) -> None:
    _rounds(stubbed, ROUND.replace("GetItem=2", "GetItem=4"))
    found = stubbed.ask(nouns)
    assert (found.ruling.value, found.figures["round_calls_too_many"]) == ("does not hold", 2)
