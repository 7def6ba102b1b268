"""What a call says after several tries: once one of them may have been applied, the whole call may have."""

import asyncio
import json
import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors
from penstock.errors import ConnectionFailedError, ThrottledError, UnavailableError, UnknownTopicError
from penstock.http.async_client import AsyncClient
from penstock.http.client import Client
from penstock.http.http_message import Document, HttpRequest, Response
from penstock.retry import NEVER_MS, RetryPolicy
from penstock.testing import ThreadedTransport
from penstock_core.errors import ErrorCode, PenstockError

WRITE = HttpRequest(method="POST", path="/v1/things", is_repeatable=True)
READ = HttpRequest(method="GET", path="/v1/things", is_read=True, is_repeatable=True)
REFUSED = Response(404, {}, b'{"error": {"code": "UNKNOWN_TOPIC", "message": "gone", "maybe_applied": false}}')
ENTRY_REFUSED = Response(
    200, {}, b'{"results": [{}, {"error": {"code": "LEASE_FENCED", "message": "", "maybe_applied": false}}]}'
)
DEADLINE_MS = 30_000
POLICY = RetryPolicy(backoff_ms=100, backoff_max_ms=5_000)
UNAVAILABLE = UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, "")


class Scripted:
    """A transport that loses an answer for each entry of `losses` (True: the request was sent), then gives one."""

    def __init__(self, losses: list[bool], response: Response) -> None:
        self._losses = [*losses]
        self._response = response

    def call(self, *_: str | bytes | Mapping[str, str]) -> Response:
        if self._losses:
            raise ConnectionFailedError("connection reset", maybe_applied=self._losses.pop(0))
        return self._response

    def close(self) -> None:
        pass


def by_thread(transport: Scripted, request: HttpRequest) -> Document:
    return Client(transport, retry=RetryPolicy(backoff_ms=1), timeout_ms=DEADLINE_MS).document(request)


def by_task(transport: Scripted, request: HttpRequest) -> Document:
    client = AsyncClient(ThreadedTransport(transport), retry=RetryPolicy(backoff_ms=1), timeout_ms=DEADLINE_MS)
    return asyncio.run(client.document(request))


CLIENTS = pytest.mark.parametrize("call", [by_thread, by_task])
Call = Callable[[Scripted, HttpRequest], Document]


@CLIENTS
@pytest.mark.parametrize(("losses", "said"), [([], False), ([False], False), ([True], True), ([True, False], True)])
def test_refusal_says_maybe_applied_when_an_earlier_try_may_have_been(
    call: Call, losses: list[bool], said: bool
) -> None:
    with pytest.raises(PenstockError) as caught:
        call(Scripted(losses, REFUSED), WRITE)
    assert caught.value.code.name == "UNKNOWN_TOPIC"
    assert caught.value.maybe_applied is said


@CLIENTS
def test_refused_entry_says_maybe_applied_when_an_earlier_try_may_have_been(call: Call) -> None:
    for losses, said in (([True], True), ([False], False)):
        answer = call(Scripted(losses, ENTRY_REFUSED), WRITE)
        assert [each["error"]["maybe_applied"] for each in answer["results"] if "error" in each] == [said]


@CLIENTS
def test_refused_read_was_never_applied_whatever_was_lost_before(call: Call) -> None:
    with pytest.raises(PenstockError) as caught:
        call(Scripted([True], REFUSED), READ)
    assert not caught.value.maybe_applied


@pytest.mark.parametrize(("failures", "bound_ms"), [(1, 100), (2, 200), (3, 400), (7, 5_000), (10_000, 5_000)])
def test_retry_waits_up_to_a_doubling_bound(failures: int, bound_ms: int) -> None:
    at = POLICY.retry_at_ms(UNAVAILABLE, failures=failures, now_ms=0, deadline_ms=NEVER_MS, chance=0.5)
    assert at == bound_ms // 2


@given(st.integers(1, 50), st.floats(0, 1, exclude_max=True))
def test_retry_stays_between_now_and_the_longest_wait(failures: int, chance: float) -> None:
    at = POLICY.retry_at_ms(UNAVAILABLE, failures=failures, now_ms=1_000, deadline_ms=NEVER_MS, chance=chance)
    assert at is not None
    assert 1_000 <= at <= 6_000


def test_retry_comes_after_retry_after_when_the_service_says_so() -> None:
    error = ThrottledError(ErrorCode.THROTTLED, "", retry_after_ms=2_000)
    assert POLICY.retry_at_ms(error, failures=1, now_ms=10, deadline_ms=NEVER_MS, chance=0.0) == 2_010
    assert POLICY.retry_at_ms(error, failures=1, now_ms=10, deadline_ms=NEVER_MS, chance=0.5) == 2_060


def test_retry_is_given_up_when_it_would_come_after_the_deadline() -> None:
    assert POLICY.retry_at_ms(UNAVAILABLE, failures=1, now_ms=0, deadline_ms=50, chance=0.5) == 50
    assert POLICY.retry_at_ms(UNAVAILABLE, failures=1, now_ms=0, deadline_ms=49, chance=0.5) is None


def test_retry_is_given_up_when_it_can_not_help() -> None:
    error = UnknownTopicError(ErrorCode.UNKNOWN_TOPIC, "")
    assert POLICY.retry_at_ms(error, failures=1, now_ms=0, deadline_ms=NEVER_MS, chance=0.0) is None


def test_policy_refuses_bounds_that_can_not_be() -> None:
    with pytest.raises(ValueError, match="backoff_ms=200"):
        RetryPolicy(backoff_ms=200, backoff_max_ms=100)


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_becomes_an_exception_of_its_own_class_and_root(code: ErrorCode) -> None:
    sent = PenstockError(code, "what", maybe_applied=True, limit=7).to_json()
    error = errors.error_from_json(sent)
    assert type(error) is errors.error_class(code) is not PenstockError
    assert (error.code, error.message, error.maybe_applied, error.facts) == (code, "what", True, {"limit": 7})


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("UNKNOWN_TOPIC", errors.UnknownTopicError),
        ("UNKNOWN_PARTITION", errors.UnknownPartitionError),
        ("TOPIC_EXISTS", errors.TopicExistsError),
        ("RECORD_TOO_LARGE", errors.RecordTooLargeError),
        ("OFFSET_OUT_OF_RANGE", errors.OffsetOutOfRangeError),
        ("THROTTLED", errors.ThrottledError),
        ("NOT_ENOUGH_ZONES", errors.UnavailableError),
        ("CORRUPT_SEGMENT", errors.CorruptError),
        ("INVALID_CONFIG", errors.InvalidError),
    ],
)
def test_each_condition_that_a_program_handles_has_a_class(code: str, kind: type[PenstockError]) -> None:
    assert isinstance(errors.error_from_json({"code": code, "message": ""}), kind)


def test_unknown_code_becomes_the_code_of_its_status() -> None:
    body = json.dumps({"error": {"code": "NEWER", "message": "later"}}).encode()
    error = errors.error_from_response(429, {}, body, is_read=True)
    assert isinstance(error, errors.ThrottledError)
    assert error.facts["service_code"] == "NEWER"


def test_gateway_refusal_becomes_access_denied_with_advice() -> None:
    error = errors.error_from_response(403, {}, b'{"message":"Forbidden"}', is_read=False)
    assert isinstance(error, errors.AccessDeniedError)
    assert error.code is ErrorCode.ACCESS_DENIED
    assert "execute-api:Invoke" in error.message
    assert not error.maybe_applied


@pytest.mark.parametrize(("is_read", "maybe_applied"), [(True, False), (False, True)])
def test_gateway_failure_may_have_been_applied_when_it_answers_a_write(is_read: bool, maybe_applied: bool) -> None:
    error = errors.error_from_response(503, {}, b"<html>", is_read=is_read)
    assert isinstance(error, errors.UnavailableError)
    assert error.maybe_applied is maybe_applied


def test_retry_after_is_a_fact_in_milliseconds() -> None:
    error = errors.error_from_response(429, {"retry-after": "3"}, b"{}", is_read=True)
    assert error.facts["retry_after_ms"] == 3_000


def test_condition_of_the_sdk_shows_its_own_name() -> None:
    error = errors.ConnectionFailedError("no answer", maybe_applied=True)
    assert str(error) == "CONNECTION_FAILED: no answer (may have been applied)"
    assert error.to_json()["code"] == "CONNECTION_FAILED"
    assert error.code.is_retriable


def _all_subclasses(kind: type[PenstockError]) -> list[type[PenstockError]]:
    return [kind, *(each for child in kind.__subclasses__() for each in _all_subclasses(child))]


@pytest.mark.parametrize(
    "kind", [each for each in _all_subclasses(PenstockError) if each.__module__ == "penstock.errors"]
)
def test_every_error_of_the_sdk_survives_pickling_with_its_facts(kind: type[PenstockError]) -> None:
    error = kind.__new__(kind, "what")
    PenstockError.__init__(error, ErrorCode.OFFSET_OUT_OF_RANGE, "what", maybe_applied=True, high_watermark=3)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.to_json(), str(copy), copy.args) == (error.to_json(), str(error), error.args)


def test_error_of_a_worker_process_is_raised_in_its_pool() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(errors.UnknownTopicError, match="no topic") as caught,
    ):
        pool.submit(_raise_unknown_topic).result()
    assert caught.value.facts == {"topic": "nope"}


def _raise_unknown_topic() -> None:
    raise errors.UnknownTopicError(ErrorCode.UNKNOWN_TOPIC, "no topic", topic="nope")


def test_as_maybe_applied_keeps_class_code_and_facts() -> None:
    error = errors.OffsetOutOfRangeError(ErrorCode.OFFSET_OUT_OF_RANGE, "m", high_watermark=3)
    twin = errors.as_maybe_applied(error)
    assert type(twin) is type(error)
    assert (twin.code, twin.message, twin.maybe_applied, twin.facts) == (error.code, "m", True, {"high_watermark": 3})
    assert not error.maybe_applied
    assert str(errors.as_maybe_applied(errors.ClosedError("x"))) == "CLOSED: x (may have been applied)"
