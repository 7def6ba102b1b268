"""What a deployment asks of its account, and what it does with the answers."""

from dataclasses import replace
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError
from botocore.stub import Stubber

from penstock_cdk.account import settled
from penstock_cdk.overrides import asks_account
from penstock_cdk.settings import STAGES, StageSettings, settings_of

EXPRESS = STAGES["prod"]
ONE_BUCKET = replace(settings_of("orders", "dev"), region="eu-central-1")


class Account:
    """An account with these answers by operation; an exception is raised."""

    def __init__(self, **answers: Any) -> None:
        zones = [{"ZoneId": zone} for zone in ("use1-az4", "use1-az5", "use1-az6")]
        self.answers: dict[str, Any] = {
            "get_account_settings": {"AccountLimit": {"ConcurrentExecutions": 400}},
            "get_account": {"throttleSettings": {"rateLimit": 2500.0}},
            "describe_availability_zones": {"AvailabilityZones": zones},
            "list_applications": {"applications": []},
            **answers,
        }
        self.asked: list[str] = []

    def client(self, service: str) -> Any:
        account = self

        class Client:
            def __getattr__(self, operation: str) -> Any:
                def call(**_: Any) -> Any:
                    account.asked.append(f"{service}.{operation}")
                    answer = account.answers[operation]
                    if isinstance(answer, Exception):
                        raise answer
                    return answer

                return call

        return Client()


def error_of(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "Ask")


def ask(settings: StageSettings, **answers: Any) -> tuple[StageSettings, list[str]]:
    return settled(settings, Account(**answers).client)


def test_stage_counts_on_what_the_account_has_and_reserves_nothing() -> None:
    found, warnings = ask(EXPRESS)
    assert (found.account_concurrency, found.api_requests_per_s, found.reserved_concurrency) == (400, 2_500, {})
    assert warnings == []


def test_settings_that_say_it_are_not_asked_for() -> None:
    account = Account()
    told = replace(ONE_BUCKET, account_concurrency=1_000, api_requests_per_s=100, emr_release=None)
    assert settled(told, account.client) == (told, [])
    assert account.asked == []


@pytest.mark.parametrize("code", ["AccessDenied", "AccessDeniedException", "UnauthorizedOperation"])
def test_refused_questions_are_warnings_and_leave_the_defaults(code: str) -> None:
    denied = dict.fromkeys(Account().answers, error_of(code))
    found, warnings = ask(EXPRESS, **denied)
    assert found == EXPRESS
    assert [warning.split()[4].rstrip(",") for warning in warnings] == [
        "lambda:GetAccountSettings",
        "apigateway:GET",
        "ec2:DescribeAvailabilityZones",
        "emr-serverless:ListApplications",
    ]


@pytest.mark.parametrize("operation", Account().answers)
@pytest.mark.parametrize("error", [error_of("InternalFailure"), ConnectTimeoutError(endpoint_url="https://x")])
def test_question_without_an_answer_stops_the_deployment(operation: str, error: Exception) -> None:
    """Else a bad minute of AWS would shrink a stage."""
    with pytest.raises(ValueError, match="-c ask=off"):
        ask(EXPRESS, **{operation: error})


def test_more_reserved_instances_than_there_are_say_how_to_ask_for_more() -> None:
    with pytest.raises(ValueError, match=r"leave 100.*request-service-quota-increase --service-code lambda"):
        ask(replace(EXPRESS, reserved_concurrency={"produce": 350}))


def test_missing_zone_is_refused_with_the_profile_that_fits() -> None:
    there = {"AvailabilityZones": [{"ZoneId": "use1-az4"}]}
    with pytest.raises(ValueError, match=r"no zone use1-az5, use1-az6 in us-east-1.*-c profile=standard1"):
        ask(EXPRESS, describe_availability_zones=there)
    ask(replace(EXPRESS, storage_profile="standard1"), describe_availability_zones=there)


def test_region_without_emr_serverless_is_refused_with_the_way_out() -> None:
    gone = EndpointConnectionError(endpoint_url="https://emr-serverless.eu-central-1.amazonaws.com")
    with pytest.raises(ValueError, match=r"region eu-central-1 has no EMR Serverless: pass -c emr_release=off"):
        ask(ONE_BUCKET, list_applications=gone)
    ask(replace(ONE_BUCKET, emr_release=None), list_applications=gone)


def test_ask_is_on_but_for_the_local_stage() -> None:
    assert asks_account({})
    assert not asks_account({"stage": "local"})
    assert not asks_account({"ask": "off"})
    with pytest.raises(ValueError, match="ask='maybe': give on or off"):
        asks_account({"ask": "maybe"})


def test_calls_are_those_of_aws() -> None:
    """botocore holds each call and its answer against AWS's description."""
    session, account = botocore.session.Session(), Account()
    operations = {"lambda": "get_account_settings", "apigateway": "get_account"}
    operations |= {"ec2": "describe_availability_zones", "emr-serverless": "list_applications"}
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}

    def client(service: str) -> Any:
        found = session.create_client(service, region_name="us-east-1", **keys)
        stubber = Stubber(found)
        stubber.add_response(operations[service], account.answers[operations[service]])
        stubber.activate()
        return found

    assert settled(EXPRESS, client) == ask(EXPRESS)
