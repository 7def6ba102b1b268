"""Whether a stage fits the account that it is deployed into: instances, requests a second, zones, EMR Serverless.

`app.py` asks before it synthesizes, with the credentials of the environment. An answer refuses or warns, and changes no
setting: the template of a stage must not depend on who deploys it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError

from penstock_cdk.settings import StageSettings
from penstock_cdk.walls import NEW_ACCOUNT, account_rate

Clients = Callable[[str], Any]
"""Makes the botocore client of a service in the region of the stage."""

_MORE_INSTANCES = (
    "aws service-quotas request-service-quota-increase --service-code lambda --quota-code L-B99A9384 "
    "--desired-value 1000"
)


def check_account(settings: StageSettings, account_id: str, clients: Clients) -> list[str]:
    """Returns what whoever deploys should know. Makes nine reads at most.

    A question without an answer is a warning, and so are credentials of another account than `account_id`. Raises
    ValueError, with the way out, for more instances than the account has, for zones and an EMR Serverless that it
    lacks, for a key that encrypts nothing, and for restored tables that another key encrypts.
    """
    account = _Account(clients)
    caller = account.ask("sts", "get_caller_identity", "sts:GetCallerIdentity")
    if isinstance(caller, _Unanswered) or caller["Account"] != account_id:
        why = caller.why if isinstance(caller, _Unanswered) else f"the credentials are of {caller['Account']}"
        return [
            f"account {account_id} was not asked whether this stage fits ({why}). Give its credentials by AWS_PROFILE: "
            "the app does not learn of `cdk --profile`"
        ]
    checks = (_instances, _rate, _zones, _emr, _key, _restored_key)
    return [warning for check in checks for warning in check(settings, account)]


@dataclass(frozen=True, slots=True)
class _Unanswered:
    why: str
    is_gone: bool  # the region has no endpoint of the service


@dataclass(frozen=True, slots=True)
class _Account:
    clients: Clients

    def ask(self, service: str, operation: str, action: str, **arguments: Any) -> Any:
        try:
            return getattr(self.clients(service), operation)(**arguments)
        except (ClientError, BotoCoreError) as error:
            code = error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
            return _Unanswered(f"{action}: {code}", is_gone=isinstance(error, EndpointConnectionError))


def _instances(settings: StageSettings, account: _Account) -> Iterator[str]:
    found = account.ask("lambda", "get_account_settings", "lambda:GetAccountSettings")
    if isinstance(found, _Unanswered):
        yield f"the account did not say how many instances it has ({found.why})"
        return
    there, told = int(found["AccountLimit"]["ConcurrentExecutions"]), settings.account_concurrency
    if told is not None and told > there:
        raise ValueError(
            f"account_concurrency={told:,}, and the account has {there:,} instances: give that number, or ask AWS for "
            f"more: {_MORE_INSTANCES}"
        )
    if told is None and there > NEW_ACCOUNT:
        yield (
            f"the account has {there:,} instances, and this stage counts on {NEW_ACCOUNT}: "
            f"-c account_concurrency={there} gives each function a share of them"
        )
    if there <= NEW_ACCOUNT:
        yield f"the account has {there:,} instances, as a new one. Ask AWS for more: {_MORE_INSTANCES}"


def _rate(settings: StageSettings, account: _Account) -> Iterator[str]:
    if settings.request_rate is None:
        return
    found = account.ask("apigateway", "get_account", "apigateway:GET of /account")
    if isinstance(found, _Unanswered):
        yield f"the account did not say how many requests a second it takes ({found.why})"
        return
    there = int(found["throttleSettings"]["rateLimit"])
    if there < (settings.api_requests_per_s or account_rate(settings.region)):
        yield f"the account takes {there:,} requests a second: -c api_requests_per_s={there} lowers all rates with it"


def _zones(settings: StageSettings, account: _Account) -> Iterator[str]:
    wanted = [zone.az_id for zone in settings.zones if zone.az_id]
    if not wanted:
        return
    found = account.ask("ec2", "describe_availability_zones", "ec2:DescribeAvailabilityZones")
    if isinstance(found, _Unanswered):
        yield f"the account did not say which zones it has ({found.why})"
        return
    there = {zone["ZoneId"] for zone in found["AvailabilityZones"]}
    if missing := [zone for zone in wanted if zone not in there]:
        raise ValueError(
            f"the account has no zone {', '.join(missing)} in {settings.region}, which the profile {settings.profile} "
            "takes: pass -c profile=standard1, or another region"
        )


def _emr(settings: StageSettings, account: _Account) -> Iterator[str]:
    if settings.emr_release is None:
        return
    found = account.ask("emr-serverless", "list_applications", "emr-serverless:ListApplications", maxResults=1)
    if isinstance(found, _Unanswered):
        if found.is_gone:
            raise ValueError(
                f"region {settings.region} has no EMR Serverless: pass -c emr_release=off, and jobs run on Glue only"
            )
        yield f"the account did not say whether it has EMR Serverless ({found.why})"


def _key(settings: StageSettings, account: _Account) -> Iterator[str]:
    if settings.kms_key is None:
        return
    found = account.ask("kms", "describe_key", "kms:DescribeKey", KeyId=settings.kms_key)
    if isinstance(found, _Unanswered):
        if found.why.endswith("NotFoundException"):
            raise ValueError(f"kms_key={settings.kms_key!r}: there is no such key, see `aws kms list-keys`")
        yield f"the account did not say whether it may use the key {settings.kms_key} ({found.why})"
        return
    key = found["KeyMetadata"]
    if key["KeyState"] != "Enabled" or key["KeySpec"] != "SYMMETRIC_DEFAULT":
        raise ValueError(
            f"kms_key={settings.kms_key!r} is a key {key['KeySpec']} in the state {key['KeyState']}: give one that is "
            "SYMMETRIC_DEFAULT and Enabled"
        )


def _restored_key(settings: StageSettings, account: _Account) -> Iterator[str]:
    """Restored tables are no resources of the stack, so the key of the settings reaches them by a command alone."""
    if settings.kms_key is None or settings.restored_tables is None:
        return
    commands = settings.restored_tables.key_commands(settings.kms_key)
    for table, command in zip(settings.restored_tables.tables, commands, strict=True):
        found = account.ask("dynamodb", "describe_table", "dynamodb:DescribeTable", TableName=table)
        if isinstance(found, _Unanswered):
            yield f"the account did not say by which key the table {table} is encrypted ({found.why}). Run: {command}"
            continue
        there = found["Table"].get("SSEDescription", {}).get("KMSMasterKeyArn")
        if there != settings.kms_key:
            raise ValueError(
                f"the restored table {table} is encrypted by {there or 'a key that AWS owns'}, and not by "
                f"kms_key={settings.kms_key!r}. The stack cannot change it: {command}"
            )
