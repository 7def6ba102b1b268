"""Alarms and costs of the deployed stack, asked from AWS with the user's own credentials.

Costs are an estimate: what CloudWatch has counted in the last day, times the list prices of `penstock.prices`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.cost.usage import hourly_sum
from penstock.prices import API_REQUESTS, LAMBDA_GB_SECONDS, LAMBDA_REQUESTS, READ_UNITS, WRITE_UNITS
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import SDK_PAGES_MAX
from penstock_core.stack_outputs import outputs_of, parse_stack_place

NOT_COUNTED = "requests to S3 and its storage, traffic, alarms and logs"

_DAY_S = 86_400
_DESCRIBED_MAX = 100  # alarms of one DescribeAlarms
_QUERIES_MAX = 500  # of one GetMetricData
_MB_PER_GB = 1_024
_ALARMS = ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm")
_DENIED = ("AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation")
_RIGHTS = (
    "cloudformation:DescribeStacks, cloudformation:ListStackResources, cloudwatch:DescribeAlarms, "
    "cloudwatch:GetMetricData and lambda:GetFunctionConfiguration"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """An alarm that rings."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """A thing that AWS bills: how much of it the last day had, and the dollars."""

    what: str
    quantity: float
    unit: str
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountFacts:
    """What AWS tells of the stack."""

    stack: str
    alarms: int
    ringing: Sequence[Alarm]
    costs: Sequence[CostLine]

    @property
    def usd(self) -> float:
        """The sum of the costs."""
        return sum(each.usd for each in self.costs)


class AccountReader:
    """Reads the stack's alarms and costs. `client` makes a client of AWS by the name of its service."""

    def __init__(self, client: Callable[[str], Any], stack: str, api_url: str) -> None:
        self._client = client
        self._stack = stack
        self._api_url = api_url.rstrip("/")
        self._memory_mb: dict[str, int] = {}  # by function

    def read(self, now_s: float) -> AccountFacts:
        """Five kinds of calls, all of them reads. Raises ACCESS_DENIED with the rights that they take."""
        from botocore.exceptions import BotoCoreError, ClientError  # 0.1 s, which a local console need not wait for

        try:
            return self._read(now_s)
        except ClientError as error:
            code = str(error.response["Error"]["Code"])
            if code in _DENIED:
                raise PenstockError(ErrorCode.ACCESS_DENIED, f"your credentials need {_RIGHTS}") from error
            raise PenstockError(
                ErrorCode.STORAGE_UNAVAILABLE,
                f"AWS answered {code} for the stack {self._stack!r}: name the deployed one with --stack",
            ) from error
        except BotoCoreError as error:
            raise PenstockError(
                ErrorCode.STORAGE_UNAVAILABLE, f"AWS could not be asked: {type(error).__name__}"
            ) from error

    def _read(self, now_s: float) -> AccountFacts:
        place = parse_stack_place(self._stack)
        cloudformation = self._client("cloudformation")
        [found] = cloudformation.describe_stacks(StackName=place.stack)["Stacks"]
        if outputs_of(found, place).get("ApiUrl", "").rstrip("/") != self._api_url:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"the stack {self._stack!r} has another API than this one: name the API's stack with --stack",
            )
        resources = [*_resources(cloudformation, place.stack)]
        names = [name for kind, name in resources if kind in _ALARMS]
        return AccountFacts(
            stack=self._stack, alarms=len(names), ringing=self._ringing(names), costs=self._costs(resources, now_s)
        )

    def _ringing(self, names: Sequence[str]) -> list[Alarm]:
        cloudwatch = self._client("cloudwatch")
        found: list[Alarm] = []
        for start in range(0, len(names), _DESCRIBED_MAX):
            page = cloudwatch.describe_alarms(
                AlarmNames=list(names[start : start + _DESCRIBED_MAX]),
                AlarmTypes=["MetricAlarm", "CompositeAlarm"],
                StateValue="ALARM",
                MaxRecords=_DESCRIBED_MAX,
            )
            found += [
                Alarm(name=each["AlarmName"], reason=each.get("StateReason", ""))
                for each in (*page.get("MetricAlarms", ()), *page.get("CompositeAlarms", ()))
            ]
        return sorted(found, key=lambda each: each.name)

    def _costs(self, resources: Sequence[tuple[str, str]], now_s: float) -> list[CostLine]:
        sums = self._sums([*_queries(resources)], now_s)
        functions = [name for kind, name in resources if kind == "AWS::Lambda::Function"]
        gb_seconds = sum(
            sums.get(("Duration", name), 0.0) / 1_000 * self._memory(name) / _MB_PER_GB
            for name in functions
            if sums.get(("Duration", name))
        )
        totals: dict[str, float] = {}
        for (metric, _), value in sums.items():
            totals[metric] = totals.get(metric, 0.0) + value
        counted = (
            ("API Gateway", API_REQUESTS, totals.get("Count", 0.0)),
            ("Lambda", LAMBDA_REQUESTS, totals.get("Invocations", 0.0)),
            ("Lambda", LAMBDA_GB_SECONDS, gb_seconds),
            ("DynamoDB", WRITE_UNITS, totals.get("ConsumedWriteCapacityUnits", 0.0)),
            ("DynamoDB", READ_UNITS, totals.get("ConsumedReadCapacityUnits", 0.0)),
        )
        return [
            CostLine(what=what, quantity=quantity, unit=price.unit, usd=price.of(quantity))
            for what, price, quantity in counted
        ]

    def _memory(self, function: str) -> int:
        if function not in self._memory_mb:
            found = self._client("lambda").get_function_configuration(FunctionName=function)
            self._memory_mb[function] = int(found["MemorySize"])
        return self._memory_mb[function]

    def _sums(self, asked: Sequence[tuple[str, str, Mapping[str, str]]], now_s: float) -> dict[tuple[str, str], float]:
        """The sums of the last day by metric and resource."""
        cloudwatch = self._client("cloudwatch")
        sums: dict[tuple[str, str], float] = {}
        for start in range(0, len(asked), _QUERIES_MAX):
            part = asked[start : start + _QUERIES_MAX]
            answer = cloudwatch.get_metric_data(
                MetricDataQueries=[hourly_sum(number, *each) for number, each in enumerate(part)],
                StartTime=now_s - _DAY_S,
                EndTime=now_s,
            )
            for result in answer["MetricDataResults"]:
                _, metric, dimensions = part[int(result["Id"][1:])]
                [resource] = dimensions.values()
                sums[metric, resource] = sums.get((metric, resource), 0.0) + sum(result["Values"])
        return sums


def _resources(cloudformation: Any, stack: str) -> Iterator[tuple[str, str]]:
    """The types and the names of the stack's resources."""
    token: dict[str, str] = {}
    for _ in range(SDK_PAGES_MAX):
        page = cloudformation.list_stack_resources(StackName=stack, **token)
        for each in page["StackResourceSummaries"]:
            yield each["ResourceType"], each.get("PhysicalResourceId", "")
        if "NextToken" not in page:
            return
        token = {"NextToken": page["NextToken"]}


def _queries(resources: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Namespace, metric and dimensions of what is billed."""
    for kind, name in resources:
        if kind == "AWS::ApiGatewayV2::Api":
            yield "AWS/ApiGateway", "Count", {"ApiId": name}
        elif kind == "AWS::Lambda::Function":
            yield "AWS/Lambda", "Invocations", {"FunctionName": name}
            yield "AWS/Lambda", "Duration", {"FunctionName": name}
        elif kind in ("AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable"):
            yield "AWS/DynamoDB", "ConsumedWriteCapacityUnits", {"TableName": name}
            yield "AWS/DynamoDB", "ConsumedReadCapacityUnits", {"TableName": name}
