"""The checks of the service and the round trip, on a service in memory and on one whose calls are billed."""

from collections.abc import Mapping
from email.utils import formatdate

import pytest

from bench.bill.deployment import billed_deployment, billed_profile
from penstock.admin.admin import Admin
from penstock.doctor.examination import AWS_ONLY, NEEDS_KEYS, examine
from penstock.doctor.finding import Finding, Report, Verdict, redacted
from penstock.doctor.recorder import AwsCalls, RecordingTransport
from penstock.doctor.round_trip import RECORDS, TOPIC_PREFIX
from penstock.errors import ConnectionFailedError
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.model.access import AccessRule
from penstock.system import wall_clock_ms
from penstock.testing import MemoryPenstock
from penstock_core.version import VERSION

CENT = 0.01
DENIED = Response(403, {"Content-Type": "application/json"}, b'{"message": "Forbidden"}')


class Altered:
    """A Transport whose answers to one method and path are changed on their way back."""

    def __init__(self, inner: Transport, method: str, path: str, answer: Response | Exception | None = None) -> None:
        self.inner = inner
        self.method, self.path, self.answer = method, path, answer
        self.headers: dict[str, str] = {}
        self.replaced: tuple[bytes, bytes] = (b"", b"")

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if method == self.method and path.startswith(self.path):
            if isinstance(self.answer, Exception):
                raise self.answer
            if self.answer is not None:
                return self.answer
            answer = self.inner.call(method, path, query, headers, body)
            return Response(answer.status, {**answer.headers, **self.headers}, answer.body.replace(*self.replaced))
        return self.inner.call(method, path, query, headers, body)

    def close(self) -> None:
        self.inner.close()


def _examine(transport: Transport) -> Report:
    return examine(RecordingTransport(transport), None, AwsCalls())


def _found(report: Report) -> dict[str, Finding]:
    return {finding.check: finding for finding in report.findings}


def test_service_in_order_is_well_and_aws_is_skipped(service: MemoryPenstock) -> None:
    report = _examine(service.transport)
    found = _found(report)
    assert report.is_well
    assert [check for check, finding in found.items() if finding.verdict is Verdict.SKIPPED] == ["clock", *AWS_ONLY]
    assert found["release"].fact == f"{VERSION}, here and there"
    assert found["storage profile"].fact == "local, 3 zones"
    assert found["zones"].fact == "all in sync"
    assert [(timing.request, timing.count) for timing in report.timings] == [
        ("produce of 1 KiB", RECORDS),
        ("fetch of 1 KiB", RECORDS),
    ]
    assert all(0 <= timing.p50_ms <= timing.p99_ms for timing in report.timings)


def test_caller_with_a_token_is_well_without_the_checks_that_need_keys() -> None:
    with MemoryPenstock(denies_by_default=True) as service:
        alice = "arn:aws:iam::111122223333:role/alice"
        rule = AccessRule(principal=alice, operation="all", resource=f"topic:{TOPIC_PREFIX}*")
        service.admin().change_acls(add=[rule])
        report = examine(RecordingTransport(service.transport_as(alice)), None, AwsCalls(), has_token=True)
    found = _found(report)
    assert report.is_well
    assert found["round trip"].verdict is Verdict.OK
    assert {found[check].fact for check in ("zones", "release", *AWS_ONLY)} == {NEEDS_KEYS}


def test_round_trip_leaves_no_topic(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    _examine(service.transport)
    assert [topic.name for topic in service.admin().list_topics()] == ["orders"]


def test_topic_that_cannot_be_deleted_is_told_with_the_command(service: MemoryPenstock) -> None:
    report = _examine(Altered(service.transport, "DELETE", "/v1/topics/", DENIED))
    [left] = [topic.name for topic in service.admin().list_topics()]
    assert left.startswith(TOPIC_PREFIX)
    assert not report.is_well
    assert report.findings[-len(AWS_ONLY) - 1].remedy == f"penstock topics delete {left} --yes"


def test_topic_goes_though_records_cannot_be_written(service: MemoryPenstock) -> None:
    report = _examine(Altered(service.transport, "POST", "/v1/produce", DENIED))
    assert _found(report)["round trip"].verdict is Verdict.UNKNOWN
    assert "execute-api:Invoke" in _found(report)["round trip"].remedy
    assert service.admin().list_topics() == []


def test_refusal_by_an_access_rule_has_the_command_that_grants_the_right() -> None:
    with MemoryPenstock(denies_by_default=True) as service:
        report = _examine(service.transport_as("arn:aws:iam::111122223333:role/shop"))
    assert "`penstock acls add 'arn:aws:iam::111122223333:role/shop' describe 'service'`" in report.findings[0].remedy


def test_round_trip_that_an_access_rule_refuses_has_the_command_too(service: MemoryPenstock) -> None:
    body = b'{"error": {"code": "NOT_AUTHORIZED", "message": "no: `grant it`", "operation": "create"}}'
    answer = Response(403, {"Content-Type": "application/json"}, body)
    report = _examine(Altered(service.transport, "POST", "/v1/topics", answer))
    assert _found(report)["round trip"].remedy == "an access rule decides it: no: `grant it`"


def test_record_that_comes_back_changed_is_to_be_mended(service: MemoryPenstock) -> None:
    changing = Altered(service.transport, "POST", "/v1/fetch")
    changing.replaced = (b"29 xxx", b"29 yyy")
    report = _examine(changing)
    finding = _found(report)["round trip"]
    assert finding.verdict is Verdict.MEND, finding


@pytest.mark.parametrize(("seconds", "verdict"), [(0, Verdict.OK), (3_600, Verdict.MEND), (-3_600, Verdict.MEND)])
def test_clock_is_compared_with_the_date_of_the_answer(service: MemoryPenstock, seconds: int, verdict: Verdict) -> None:
    dated = Altered(service.transport, "GET", "/v1/zones")
    dated.headers = {"Date": formatdate(wall_clock_ms() / 1_000 - seconds, usegmt=True)}
    finding = _found(_examine(dated))["clock"]
    assert finding.verdict is verdict
    assert ("ahead of" in finding.fact, "behind" in finding.fact) == (seconds > 0, seconds < 0)


def test_other_release_is_to_be_mended(service: MemoryPenstock) -> None:
    other = Altered(service.transport, "GET", "/v1/zones")
    other.replaced = (VERSION.encode(), b"0.0.9")
    finding = _found(_examine(other))["release"]
    assert finding.verdict is Verdict.MEND
    assert finding.fact == f"the service runs 0.0.9, and this command is of {VERSION}"
    older = Altered(service.transport, "GET", "/v1/zones")
    older.replaced = (b'"version":"', b'"other":"')
    assert "older" in _found(_examine(older))["release"].fact


def test_zone_that_is_out_is_told(service: MemoryPenstock) -> None:
    Admin(transport=service.transport).take_zone_out("b", "a test")
    finding = _found(_examine(service.transport))["zones"]
    assert (finding.verdict, finding.fact) == (Verdict.MEND, "b is taken_out")


@pytest.mark.parametrize("answer", [DENIED, ConnectionFailedError("no answer", maybe_applied=False)])
def test_service_that_does_not_answer_is_told_and_asked_nothing_more(
    service: MemoryPenstock, answer: Response | Exception
) -> None:
    report = _examine(Altered(service.transport, "GET", "/v1/zones", answer))
    found = _found(report)
    assert found["service"].verdict is Verdict.MEND
    assert found["round trip"].verdict is Verdict.SKIPPED
    assert service.admin().list_topics() == []


@pytest.mark.slow
def test_run_costs_less_than_a_cent_and_no_more_than_it_says() -> None:
    """The bill prices what the handlers really call; the doctor prices what their answers tell it."""
    with billed_deployment(billed_profile("standard1")) as deployment:
        report = _examine(deployment)
        bill = deployment.take()
    assert report.is_well
    assert report.cost.requests == bill.requests > 2 * RECORDS
    assert bill.usd <= report.cost.usd_max < CENT


@pytest.mark.parametrize(
    "text",
    [
        "arn:aws:iam::123456789012:user/ann of account 123456789012",
        "no answer from https://abcdefghij.execute-api.us-east-1.amazonaws.com/v1 to GET",
        "host abcdefghij.execute-api.us-east-1.amazonaws.com, 10.1.2.3:4566",
        "Credential=AKIAIOSFODNN7EXAMPLE",
    ],
)
def test_redacted_text_names_no_account_key_or_host(text: str) -> None:
    clean = redacted(text)
    assert not any(secret in clean for secret in ("123456789012", "abcdefghij", "AKIA", "10.1.2.3", "ann "))
    assert "<" in clean


def test_redaction_leaves_other_text() -> None:
    text = "1,000 instances at once; topic penstock-doctor-0123456789ab, offsets 0 to 29, 0.1.0"
    assert redacted(text) == text
