"""What a deployment asks of its account, and what it does with the answers."""

from dataclasses import replace
from functools import cache
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError, NoCredentialsError
from botocore.stub import Stubber

from penstock_cdk.account import check_account
from penstock_cdk.overrides import asks_account
from penstock_cdk.settings import STAGES, RestoredTables, StageSettings, settings_of

KEY = "arn:aws:kms:us-east-1:123456789012:key/1"
EXPRESS = replace(STAGES["prod"], account_concurrency=400, api_requests_per_s=2_500, kms_key=KEY)
ONE_BUCKET = replace(settings_of("orders", "dev"), region="eu-central-1", account_concurrency=400)
ID = "123456789012"


def key_of(state: str, spec: str = "SYMMETRIC_DEFAULT") -> dict[str, Any]:
    return {"KeyMetadata": {"KeyState": state, "KeySpec": spec, "KeyId": "1"}}


class Account:
    """An account with these answers by operation; an exception is raised."""

    def __init__(self, **answers: Any) -> None:
        zones = [{"ZoneId": zone} for zone in ("use1-az4", "use1-az5", "use1-az6")]
        self.answers: dict[str, Any] = {
            "get_caller_identity": {"Account": ID},
            "get_account_settings": {"AccountLimit": {"ConcurrentExecutions": 400}},
            "get_account": {"throttleSettings": {"rateLimit": 2500.0}},
            "describe_availability_zones": {"AvailabilityZones": zones},
            "list_applications": {"applications": []},
            "describe_key": key_of("Enabled"),
            **answers,
        }

    def client(self, service: str) -> Any:
        account = self

        class Client:
            def __getattr__(self, operation: str) -> Any:
                def call(**_: Any) -> Any:
                    answer = account.answers[operation]
                    if isinstance(answer, Exception):
                        raise answer
                    return answer

                return call

        return Client()


def error_of(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "Ask")


def ask(settings: StageSettings, **answers: Any) -> list[str]:
    return check_account(settings, ID, Account(**answers).client)


def test_stage_that_fits_is_told_nothing() -> None:
    assert ask(EXPRESS) == []
    assert ask(replace(ONE_BUCKET, api_requests_per_s=2_500)) == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"Account": "210987654321"}, "the credentials are of 210987654321"),
        (NoCredentialsError(), "sts:GetCallerIdentity: NoCredentialsError"),
        (error_of("ExpiredToken"), "sts:GetCallerIdentity: ExpiredToken"),
    ],
)
def test_other_account_is_not_asked(answer: Any, why: str) -> None:
    """`cdk --profile` gives the app no credentials, so those of the environment may be of another account."""
    [warning] = ask(EXPRESS, get_caller_identity=answer, get_account_settings=AssertionError())
    assert why in warning
    assert "AWS_PROFILE" in warning


@pytest.mark.parametrize("operation", list(Account().answers)[1:])
@pytest.mark.parametrize("error", [error_of("AccessDenied"), ConnectTimeoutError(endpoint_url="https://x")])
def test_question_without_an_answer_is_a_warning(operation: str, error: Exception) -> None:
    [warning] = ask(EXPRESS, **{operation: error})
    assert warning.startswith("the account did not say")
    assert "AccessDenied" in warning or "ConnectTimeoutError" in warning


def test_account_that_has_more_is_told_with_the_setting() -> None:
    [warning] = ask(replace(EXPRESS, account_concurrency=None))
    assert "-c account_concurrency=400" in warning
    [warning] = ask(replace(EXPRESS, api_requests_per_s=None))
    assert "-c api_requests_per_s=2500" in warning


def test_new_account_is_told_how_to_ask_for_more() -> None:
    [warning] = ask(
        replace(EXPRESS, account_concurrency=None), get_account_settings={"AccountLimit": {"ConcurrentExecutions": 10}}
    )
    assert "request-service-quota-increase --service-code lambda" in warning


def test_more_instances_than_there_are_are_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"account_concurrency=1,000.*has 400.*request-service-quota-increase"):
        ask(replace(EXPRESS, account_concurrency=1_000))


def test_missing_zone_is_refused_with_the_profile_that_fits() -> None:
    there = {"AvailabilityZones": [{"ZoneId": "use1-az4"}]}
    with pytest.raises(ValueError, match=r"no zone use1-az5, use1-az6 in us-east-1.*-c profile=standard1"):
        ask(EXPRESS, describe_availability_zones=there)
    assert ask(replace(EXPRESS, storage_profile="standard1"), describe_availability_zones=there) == []


def test_region_without_emr_serverless_is_refused_with_the_way_out() -> None:
    gone = EndpointConnectionError(endpoint_url="https://emr-serverless.us-east-1.amazonaws.com")
    with pytest.raises(ValueError, match=r"region us-east-1 has no EMR Serverless: pass -c emr_release=off"):
        ask(EXPRESS, list_applications=gone)
    assert ask(replace(EXPRESS, emr_release=None), list_applications=gone) == []


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (error_of("NotFoundException"), "there is no such key, see `aws kms list-keys`"),
        (key_of("PendingDeletion"), "in the state PendingDeletion: give one that is SYMMETRIC_DEFAULT and Enabled"),
        (key_of("Enabled", "RSA_2048"), "is a key RSA_2048 in the state Enabled"),
    ],
)
def test_key_that_encrypts_nothing_is_refused_with_the_way_out(answer: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"kms_key='{KEY}'.*{told}"):
        ask(EXPRESS, describe_key=answer)
    assert ask(replace(EXPRESS, kms_key=None), describe_key=AssertionError()) == []


OF_KEY = {"Table": {"SSEDescription": {"KMSMasterKeyArn": KEY}}}
RESTORED = replace(
    EXPRESS, restored_tables=RestoredTables(topics="t", log="l", groups="g", log_stream="2026-11-29T01:00:00.000")
)


@pytest.mark.parametrize("there", ["arn:aws:kms:us-east-1:123456789012:key/2", None])
def test_restored_table_of_another_key_is_refused_with_the_command(there: str | None) -> None:
    table = {"SSEDescription": {"KMSMasterKeyArn": there}} if there else {}
    with pytest.raises(ValueError, match=rf"encrypted by {there or 'a key that AWS owns'}.*--table-name t .*{KEY}"):
        ask(RESTORED, describe_table={"Table": table})
    assert ask(RESTORED, describe_table=OF_KEY) == []
    assert ask(replace(RESTORED, kms_key=None), describe_table=AssertionError()) == []


def test_restored_tables_that_may_not_be_asked_are_a_warning_each() -> None:
    told = ask(RESTORED, describe_table=error_of("AccessDeniedException"))
    assert [each.rpartition("Run: ")[2].split()[4] for each in told] == ["t", "l", "g"]
    assert "dynamodb:DescribeTable" in told[0]


def test_ask_is_on_but_for_the_local_stage() -> None:
    assert asks_account({})
    assert not asks_account({"stage": "local"})
    assert not asks_account({"ask": "off"})


def test_calls_are_those_of_aws() -> None:
    """botocore holds each call and its answer against AWS's description."""
    session, account = botocore.session.Session(), Account(describe_table=OF_KEY)
    operations = {"sts": "get_caller_identity", "lambda": "get_account_settings", "apigateway": "get_account"}
    operations |= {"ec2": "describe_availability_zones", "emr-serverless": "list_applications", "kms": "describe_key"}
    operations |= {"dynamodb": "describe_table"}
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}

    def client(service: str) -> Any:
        found = session.create_client(service, region_name="us-east-1", **keys)
        stubber = Stubber(found)
        for _ in range(3 if service == "dynamodb" else 1):
            stubber.add_response(operations[service], account.answers[operations[service]])
        stubber.activate()
        return found

    assert check_account(RESTORED, ID, cache(client)) == []
