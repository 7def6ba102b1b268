"""What the account of a deployment has: instances, requests a second, availability zones, EMR Serverless.

`app.py` asks before it synthesizes, with the credentials of whoever deploys: CloudFormation cannot set what it reads.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError

from penstock_cdk.settings import StageSettings

Clients = Callable[[str], Any]
"""Makes the botocore client of a service in the region of the stage."""

_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthFailure")
_MORE_INSTANCES = (
    "aws service-quotas request-service-quota-increase --service-code lambda --quota-code L-B99A9384 "
    "--desired-value 1000"
)


def settled(settings: StageSettings, clients: Clients) -> tuple[StageSettings, list[str]]:
    """Returns the settings with what the account says, and a warning for each question that the caller may not ask.

    Asks for `account_concurrency` and `api_requests_per_s` where the settings have none, and reserves nothing. Makes
    four calls at most. Raises ValueError, with the way out, for more reserved instances than the account has, for zones
    and an EMR Serverless that it lacks, and if AWS does not answer.
    """
    account = _Account(clients)
    settings = _with_instances(settings, account)
    settings = _with_rate(settings, account)
    _check_zones(settings, account)
    _check_emr(settings, account)
    return settings, account.warnings


@dataclass(frozen=True, slots=True)
class _Account:
    clients: Clients
    warnings: list[str] = field(default_factory=list)

    def ask(self, service: str, operation: str, action: str, **arguments: Any) -> Any:
        """The answer, None if the caller may not ask. Raises ValueError if there is none."""
        try:
            return getattr(self.clients(service), operation)(**arguments)
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and error.response["Error"]["Code"] in _DENIED:
                self.warnings.append(f"you may not call {action}, so the stage counts on what a new account has")
                return None
            raise ValueError(
                f"{action} gives no answer ({error}): try again, or deploy without questions by -c ask=off"
            ) from error


def _with_instances(settings: StageSettings, account: _Account) -> StageSettings:
    if settings.account_concurrency is not None:
        return settings
    found = account.ask("lambda", "get_account_settings", "lambda:GetAccountSettings")
    if found is None:
        return settings
    try:
        return replace(settings, account_concurrency=int(found["AccountLimit"]["ConcurrentExecutions"]))
    except ValueError as error:
        raise ValueError(f"{error}. Ask AWS for more: {_MORE_INSTANCES}") from error


def _with_rate(settings: StageSettings, account: _Account) -> StageSettings:
    if settings.api_requests_per_s is not None or settings.request_rate is None:
        return settings
    found = account.ask("apigateway", "get_account", "apigateway:GET of /account")
    if found is None:
        return settings
    return replace(settings, api_requests_per_s=max(1, int(found["throttleSettings"]["rateLimit"])))


def _check_zones(settings: StageSettings, account: _Account) -> None:
    wanted = [zone.az_id for zone in settings.zones if zone.az_id]
    found = account.ask("ec2", "describe_availability_zones", "ec2:DescribeAvailabilityZones") if wanted else None
    there = {zone["ZoneId"] for zone in found["AvailabilityZones"]} if found is not None else set(wanted)
    if missing := [zone for zone in wanted if zone not in there]:
        raise ValueError(
            f"the account has no zone {', '.join(missing)} in {settings.region}, which the profile {settings.profile} "
            "takes: pass -c profile=standard1, or another region"
        )


def _check_emr(settings: StageSettings, account: _Account) -> None:
    if settings.emr_release is None:
        return
    try:
        account.ask("emr-serverless", "list_applications", "emr-serverless:ListApplications", maxResults=1)
    except ValueError as error:
        if not isinstance(error.__cause__, EndpointConnectionError):
            raise
        raise ValueError(
            f"region {settings.region} has no EMR Serverless: pass -c emr_release=off, and jobs run on Glue only"
        ) from error
