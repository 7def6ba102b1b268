import json
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from penstock import errors
from penstock_core.errors import ErrorCode, PenstockError


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
