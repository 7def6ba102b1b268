"""botocore's clients as drivers: what its errors say about a call, and that nothing else needs botocore."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ChecksumError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    ReadTimeoutError,
)

from penstock_service.adapters.aws import Storage
from penstock_service.adapters.botocore_drivers import BotocoreDriver, BotocoreDrivers
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError, DriverError, NeverSentError, NoAnswerError
from penstock_service.adapters.storage_calls import StorageCalls

STORAGE = Storage(
    topics_table="t", log_table="l", groups_table="g", repair_queue_url=None, zones=(), archive="a", region="us-east-1"
)
URL = "https://dynamodb.test"
NEVER_SENT = [ConnectTimeoutError(endpoint_url=URL), EndpointConnectionError(endpoint_url=URL)]
NO_ANSWER = [
    ReadTimeoutError(endpoint_url=URL),
    ConnectionClosedError(endpoint_url=URL),
    HTTPClientError(error="broken"),
    ChecksumError(checksum_type="crc32", expected_checksum="1", actual_checksum="2"),
    NoCredentialsError(),
]
ITEM = {"pk": {"S": "a"}}
REASONS = [{"Code": "None"}, {"Code": "ConditionalCheckFailed", "Item": ITEM}]


class Client:
    """A client of botocore whose calls raise this error, or give this answer."""

    def __init__(self, outcome: object) -> None:
        self._outcome = outcome

    def call(self, *_arguments: object, **_named: object) -> object:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    read = call


def _raised(error: Exception) -> DriverError:
    with pytest.raises(DriverError) as caught:
        BotocoreDriver(Client(error)).call(Key="a")
    assert str(caught.value) == str(error)
    assert caught.value.__cause__ is error
    return caught.value


def _refusal(**answer: Any) -> ClientError:
    return ClientError({"Error": {"Code": "Code", "Message": "text"}, **answer}, "UpdateItem")


@pytest.mark.parametrize("error", NEVER_SENT, ids=repr)
def test_call_was_never_sent_when_no_connection_came_about(error: BotoCoreError) -> None:
    assert type(_raised(error)) is NeverSentError


@pytest.mark.parametrize("error", NO_ANSWER, ids=repr)
def test_call_has_no_answer_when_botocore_fails_in_another_way(error: BotoCoreError) -> None:
    assert type(_raised(error)) is NoAnswerError


@pytest.mark.parametrize("status", [400, 503])
def test_answer_is_an_error_with_its_code_status_item_and_reasons(status: int) -> None:
    error = _raised(_refusal(ResponseMetadata={"HTTPStatusCode": status}, Item=ITEM, CancellationReasons=REASONS))
    assert isinstance(error, AnsweredError)
    assert (error.code, error.status, error.item, error.reasons) == ("Code", status, ITEM, REASONS)


def test_answer_may_have_been_applied_when_it_has_no_status() -> None:
    error = _raised(_refusal())
    assert isinstance(error, AnsweredError)
    assert (error.status, error.item, error.reasons) == (500, None, ())


def test_error_survives_pickling() -> None:
    error = _raised(_refusal(Item=ITEM, CancellationReasons=REASONS))
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), vars(copied)) == (str(error), vars(error))


def test_answer_is_the_one_of_botocore() -> None:
    assert BotocoreDriver(Client({"Item": ITEM})).call() == {"Item": ITEM}


def test_body_that_breaks_off_has_no_answer() -> None:
    body = Client(ReadTimeoutError(endpoint_url=URL))
    answer = BotocoreDriver(Client({"Body": body})).call()
    with pytest.raises(NoAnswerError, match="Read timeout"):
        answer["Body"].read()


def test_driver_has_the_methods_of_its_client_only() -> None:
    assert not hasattr(BotocoreDriver(Client({})), "open_session")


def _fail(*_arguments: object) -> None:
    raise NoRegionError


@pytest.mark.parametrize(
    ("method", "use"),
    [("_client", lambda drivers: drivers.s3()), ("_frozen_credentials", lambda drivers: drivers.keys())],
)
def test_client_that_cannot_be_made_is_an_error_of_its_driver(
    monkeypatch: pytest.MonkeyPatch, method: str, use: Callable[[BotocoreDrivers], object]
) -> None:
    monkeypatch.setattr(BotocoreDrivers, method, _fail)
    with pytest.raises(NoAnswerError, match="region"):
        use(BotocoreDrivers(STORAGE, StorageCalls()))


_IMPORT_WITHOUT_BOTOCORE = """
import pkgutil, sys
sys.path[:0] = {path!r}
sys.modules["botocore"] = sys.modules["boto3"] = None
import penstock_service.adapters.dynamodb as room
from importlib import import_module
for module in pkgutil.iter_modules(room.__path__):
    if module.name != "botocore_driver":
        import_module(f"{{room.__name__}}.{{module.name}}")
"""


@pytest.mark.slow
def test_room_of_dynamodb_needs_no_botocore_without_its_driver() -> None:
    path = [entry for entry in sys.path if entry]
    script = _IMPORT_WITHOUT_BOTOCORE.format(path=path)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
