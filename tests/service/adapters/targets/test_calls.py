"""Deliveries of many calls: the first failure of a call, and the time.

The session of the role that delivers: when it assumes the role, and what happens to a refusal.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import botocore.session
import pytest

from penstock_core.errors import ErrorCode
from penstock_core.push.batch import Answered, Failed, Failure
from penstock_core.push.targets.target import FunctionTarget, QueueTarget
from penstock_service.adapters.targets.calls import EntrySizes, Refusals, failure_of, session_of_role, statement_id
from penstock_service.adapters.targets.function import LambdaFunctions
from penstock_service.adapters.targets.queue import SqsQueues
from tests.service.adapters.targets.entry_service import ROLE, FakeEntryService, HastyClock, entry_calls
from tests.support.aws_errors import client_error
from tests.support.push_records import StoredRecord, orders
from tests.support.refusals import refused

BATCH = orders(*(StoredRecord(offset) for offset in range(200)))
ENTRIES = EntrySizes(sizes=[1] * 200, bytes_max=100, service="It")
HOUR = timedelta(hours=1)
DENIED = client_error("AccessDenied", 403, operation="AssumeRole")


class Calls:
    def __init__(self, failing: int | None = None) -> None:
        self.first: list[int] = []
        self._failing = failing

    def __call__(self, indices: Sequence[int]) -> Refusals | Failed:
        self.first.append(indices[0])
        if self._failing in indices:
            return Failed(failure=Failure.AWAY, error="throttled")
        return {index: "bad" for index in indices if index % 100 == 7}


def test_all_entries_are_sent_and_those_refused_are_named() -> None:
    calls = Calls()
    found = entry_calls().send(BATCH, ENTRIES, calls, 50_000)
    assert calls.first == [*range(0, 200, 10)]
    assert found == Answered(
        failed=frozenset({BATCH.records[7].place, BATCH.records[107].place}),
        error="2 of 200 records were refused; orders-0 at offset 7: bad",
    )


def test_call_that_fails_ends_the_delivery_after_those_beside_it() -> None:
    calls = Calls(failing=15)
    found = entry_calls().send(BATCH, ENTRIES, calls, 50_000)
    assert found == Failed(failure=Failure.AWAY, error="throttled")
    assert calls.first == [*range(0, 80, 10)]


def test_delivery_whose_time_is_over_may_be_the_fault_of_its_records() -> None:
    """A batch that never ends in time would come again for ever if that were an outage. So it is halved at last."""
    calls = Calls()
    found = entry_calls(HastyClock(20_000)).send(BATCH, ENTRIES, calls, 50_000)
    assert found == Failed(failure=Failure.BROKEN, error="the time is over after 16 of 20 calls with 200 records")
    assert calls.first == [*range(0, 160, 10)]


def test_first_calls_begin_however_short_the_time_is() -> None:
    calls = Calls()
    found = entry_calls(HastyClock(20_000)).send(BATCH, ENTRIES, calls, 1)
    assert isinstance(found, Failed)
    assert calls.first == [*range(0, 80, 10)]


class FakeSts:
    """A session whose client of STS gives keys for `lifetime`."""

    def __init__(self, lifetime: timedelta = HOUR) -> None:
        self.calls: list[dict[str, Any]] = []
        self.services: list[tuple[str, str | None]] = []
        self._lifetime = lifetime

    def get_config_variable(self, name: str) -> str:
        assert name == "region"
        return "eu-west-1"

    def create_client(self, service: str, *, config: Any, endpoint_url: str | None) -> Any:
        assert config.read_timeout == 3
        self.services.append((service, endpoint_url))
        return self

    def assume_role(self, **arguments: Any) -> Any:
        self.calls.append(arguments)
        number = len(self.calls)
        return {
            "Credentials": {
                "AccessKeyId": f"key{number}",
                "SecretAccessKey": "secret",
                "SessionToken": "token",
                "Expiration": datetime.now(UTC) + self._lifetime,
            }
        }


def session(sts: FakeSts, endpoint_url: str | None = None) -> botocore.session.Session:
    return session_of_role(cast(botocore.session.Session, sts), ROLE, endpoint_url)


def key_of(found: botocore.session.Session) -> str:
    credentials = found.get_credentials()
    assert credentials is not None
    return str(credentials.get_frozen_credentials().access_key)


def test_role_is_assumed_at_the_first_call_and_not_again_within_the_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the function's own")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the function's own")
    sts = FakeSts()
    found = session(sts, "http://127.0.0.1:4566")
    assert sts.calls == []
    assert [key_of(found), key_of(found)] == ["key1", "key1"]
    assert sts.calls == [{"RoleArn": ROLE, "RoleSessionName": "penstock", "DurationSeconds": 3_600}]
    assert sts.services == [("sts", "http://127.0.0.1:4566")]
    assert found.get_config_variable("region") == "eu-west-1"


def test_role_is_assumed_again_before_its_keys_end() -> None:
    found = session(FakeSts(timedelta(minutes=5)))
    assert [key_of(found), key_of(found)] == ["key1", "key2"]


def test_role_that_may_not_be_assumed_is_an_outage_and_not_the_fault_of_a_target() -> None:
    assert failure_of(DENIED) == Failed(failure=Failure.AWAY, error=str(DENIED))
    sqs = FakeEntryService(error=DENIED)
    queue = QueueTarget(url="https://sqs.eu-west-1.amazonaws.com/123456789012/pack")
    refused(ErrorCode.STORAGE_UNAVAILABLE, lambda: SqsQueues(sqs.client, entry_calls(), ROLE).check(queue))

    def no_client(_timeout_ms: int) -> Any:
        raise DENIED

    function = FunctionTarget(arn="arn:aws:lambda:eu-west-1:123456789012:function:pack")
    refused(ErrorCode.STORAGE_UNAVAILABLE, lambda: LambdaFunctions(no_client, ROLE).check(function))


def test_statements_of_two_stages_have_two_ids() -> None:
    ids = {statement_id(f"arn:aws:iam::123456789012:role/{stage}-targets-eu-west-1") for stage in ("shop", "shop-dev")}
    assert ids == {"ShopTargetsEuWest1", "ShopDevTargetsEuWest1"}
