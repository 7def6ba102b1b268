"""Alarms and costs by AWS's answers, and what the page says without them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from penstock.console.account import AccountReader
from penstock.prices import API_REQUESTS, LAMBDA_GB_SECONDS, LAMBDA_REQUESTS, READ_UNITS, WRITE_UNITS
from penstock_core.errors import ErrorCode, PenstockError
from tests.sdk.console.conftest import RunningConsole
from tests.sdk.console.hostile import forbidden_in
from tests.sdk.console.test_background import DEADLINE_MS
from tests.support.refusals import refused

URL = "https://abc.execute-api.eu-central-1.amazonaws.com"
DAY_S = 86_400


class Account:
    """The answers of AWS for a stack with an API, two functions, a table and 101 alarms."""

    def __init__(self, *, sums: Mapping[tuple[str, str], Sequence[float]], ringing: Sequence[str] = ()) -> None:
        self.sums = sums
        self.ringing = ringing
        self.error: Exception | None = None
        self.calls: list[str] = []

    def client(self, service: str) -> Any:
        self.calls.append(service)
        if self.error is not None:
            raise self.error
        return self

    def describe_stacks(self, StackName: str) -> Any:  # noqa: N803 - AWS's name
        return {"Stacks": [{"StackStatus": "x", "Outputs": [{"OutputKey": "ApiUrl", "OutputValue": f"{URL}/"}]}]}

    def list_stack_resources(self, StackName: str, NextToken: str = "") -> Any:  # noqa: N803
        resources = [
            ("AWS::ApiGatewayV2::Api", "abc"),
            ("AWS::Lambda::Function", "produce"),
            ("AWS::Lambda::Function", "fetch"),
            ("AWS::DynamoDB::Table", "log"),
            ("AWS::S3::Bucket", "zone-a"),
        ]
        alarms = [("AWS::CloudWatch::Alarm", f"alarm-{number}") for number in range(101)]
        found = alarms if NextToken else resources
        page = [{"ResourceType": kind, "PhysicalResourceId": name} for kind, name in found]
        return {"StackResourceSummaries": page, **({} if NextToken else {"NextToken": "more"})}

    def describe_alarms(self, AlarmNames: Sequence[str], **_: Any) -> Any:  # noqa: N803
        found = [each for each in AlarmNames if each in self.ringing]
        return {"MetricAlarms": [{"AlarmName": each, "StateReason": "<b>because"} for each in found]}

    def get_metric_data(self, MetricDataQueries: Sequence[Any], StartTime: float, EndTime: float) -> Any:  # noqa: N803
        assert EndTime - StartTime == DAY_S
        return {"MetricDataResults": [*self._results(MetricDataQueries)]}

    def _results(self, queries: Sequence[Any]) -> Iterator[Any]:
        for query in queries:
            metric = query["MetricStat"]["Metric"]
            [dimension] = metric["Dimensions"]
            yield {"Id": query["Id"], "Values": self.sums.get((metric["MetricName"], dimension["Value"]), ())}

    def get_function_configuration(self, FunctionName: str) -> Any:  # noqa: N803
        return {"MemorySize": {"produce": 512, "fetch": 1_024}[FunctionName]}


SUMS = {
    ("Count", "abc"): (1_000_000, 500_000),
    ("Invocations", "produce"): (1_000_000,),
    ("Duration", "produce"): (4_000_000,),  # ms: 4,000 s of half a GB
    ("Duration", "fetch"): (1_000_000,),
    ("ConsumedWriteCapacityUnits", "log"): (2_000_000,),
    ("ConsumedReadCapacityUnits", "log"): (8_000_000,),
}


def test_cost_is_what_was_counted_times_the_prices() -> None:
    account = Account(sums=SUMS)
    found = AccountReader(account.client, "Penstock", URL).read(1_000_000)
    expected = (
        API_REQUESTS.of(1_500_000)
        + LAMBDA_REQUESTS.of(1_000_000)
        + LAMBDA_GB_SECONDS.of(3_000)
        + WRITE_UNITS.of(2_000_000)
        + READ_UNITS.of(8_000_000)
    )
    assert found.usd == pytest.approx(expected)
    assert (found.alarms, [*found.ringing]) == (101, [])


def test_alarms_that_ring_are_named_beyond_the_first_page() -> None:
    account = Account(sums={}, ringing=["alarm-3", "alarm-100"])
    found = AccountReader(account.client, "Penstock", URL).read(1_000_000)
    assert [each.name for each in found.ringing] == ["alarm-100", "alarm-3"]
    assert found.usd == 0


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ClientError({"Error": {"Code": "AccessDenied"}}, "x"), ErrorCode.ACCESS_DENIED, "cloudwatch:GetMetricData"),
        (ClientError({"Error": {"Code": "ValidationError"}}, "x"), ErrorCode.STORAGE_UNAVAILABLE, "--stack"),
        (NoCredentialsError(), ErrorCode.STORAGE_UNAVAILABLE, "NoCredentialsError"),
    ],
)
def test_missing_right_is_named(error: Exception, code: ErrorCode, said: str) -> None:
    account = Account(sums={})
    account.error = error
    reader = AccountReader(account.client, "Penstock", URL)
    assert said in refused(code, lambda: reader.read(1_000_000)).message


def test_stack_of_another_service_is_refused() -> None:
    reader = AccountReader(Account(sums={}).client, "Penstock", "https://other")
    assert "another API" in refused(ErrorCode.INVALID_CONFIG, lambda: reader.read(1_000_000)).message


def test_overview_shows_alarms_and_costs_or_why_there_are_none(service: Any) -> None:
    account = Account(sums=SUMS, ringing=["alarm-3"])
    reader = AccountReader(account.client, "Penstock", URL)
    console = RunningConsole(service.transport, read_account=lambda: reader.read(1_000_000))
    try:
        assert console.memory.account is not None
        console.memory.account.look(DEADLINE_MS)
        seen = console.visitor().get("/")
        assert "1 of 101 alarms ring" in seen.text
        assert "$3.99" in seen.text
        assert "Not counted: requests to S3" in seen.text
        assert forbidden_in(seen.html) == []
        assert "<b>because" not in seen.html
    finally:
        console.stop()


def test_overview_without_rights_says_which_are_missing(service: Any) -> None:
    def read() -> Any:
        raise PenstockError(ErrorCode.ACCESS_DENIED, "your credentials need cloudwatch:DescribeAlarms")

    console = RunningConsole(service.transport, read_account=read)
    try:
        assert console.memory.account is not None
        console.memory.account.look(DEADLINE_MS)
        assert "not known: ACCESS_DENIED: your credentials need cloudwatch" in console.visitor().get("/").text
    finally:
        console.stop()
