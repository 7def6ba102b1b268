"""A few thousand policies; `python -m tests.fuzz filters` takes more of them."""

import pytest

from penstock_service.adapters.memory.service import memory_instance
from tests.fuzz.broken_batches import BatchFuzzer
from tests.fuzz.broken_requests import FuzzedRequest, RequestFuzzer
from tests.fuzz.decoders import compare_decoders
from tests.fuzz.filters import fuzz_filters
from tests.fuzz.requests import RequestReport, answer_bytes, fuzz_requests, send_fuzzed


@pytest.mark.parametrize(
    "count", [pytest.param(1_000, id="few"), pytest.param(100_000, id="many", marks=pytest.mark.minutes)]
)
def test_the_sdk_and_spark_read_the_same_records_and_refuse_the_same_batches(count: int) -> None:
    report = compare_decoders(count, seed=12)
    assert report.differing == []
    assert 0.1 * count < report.refused < 0.9 * count  # the inputs are neither all broken nor all sound


def test_the_same_seed_makes_the_same_batches() -> None:
    assert [BatchFuzzer(3).batches() for _ in range(20)] == [BatchFuzzer(3).batches() for _ in range(20)]


def test_a_decoder_that_takes_longer_integers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant: the fast decoder cuts a long integer instead of leaving it to the codec."""

    def cut(data: bytes, position: int) -> tuple[int, int]:
        return data[position] >> 1, position + 1

    monkeypatch.setattr("penstock_spark.decode.headers._varint", cut)
    assert compare_decoders(1_000, seed=12).differing


@pytest.mark.parametrize("seed", range(1))
def test_policies_are_refused_or_match_as_they_read(seed: int) -> None:
    report = fuzz_filters(1_500, seed)
    assert report.broken == []
    assert report.taken > 100


@pytest.mark.parametrize(
    "count", [pytest.param(1_500, id="few"), pytest.param(100_000, id="many", marks=pytest.mark.minutes)]
)
def test_no_request_is_answered_by_a_failure_or_by_more_than_lambda_can_return(count: int) -> None:
    report = fuzz_requests(count, seed=12)
    assert report.broken == []
    assert report.inputs == count
    assert report.statuses[200] > 0.2 * count  # the requests are neither all broken nor all sound
    assert report.statuses[400] > 0.1 * count


def test_the_same_seed_makes_the_same_requests() -> None:
    one, other = RequestFuzzer(3), RequestFuzzer(3)
    assert [one.request() for _ in range(200)] == [other.request() for _ in range(200)]


def test_a_failure_and_a_large_answer_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    report, request = RequestReport(), FuzzedRequest(method="GET", path="/v1/topics")
    large = (200, {"Content-Type": "application/json"}, b'"' * 4_000_000)
    for answer in ((500, {}, b"{}"), large):
        monkeypatch.setattr("tests.fuzz.requests.dispatch", lambda *_, found=answer: found)
        send_fuzzed(memory_instance(), request, report)
    assert [what.split()[0] for what, _ in report.broken] == ["500", "an"]


def test_an_answer_counts_as_lambda_counts_it() -> None:
    assert answer_bytes(200, {"Content-Type": "application/json"}, b'"' * 100) > 200  # quotes are escaped
    assert answer_bytes(200, {"Content-Type": "application/octet-stream"}, bytes(300)) >= 400  # base64
