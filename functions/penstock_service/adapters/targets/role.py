"""The session of the role that delivers.

A caller of the API chooses the target, and the service calls it. So the calls run under a role that may do nothing by
itself: only targets that let it in can be reached. The roles of the functions may do more. They send to Penstock's own
queues, which no subscription must reach.
"""

import re
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.credentials import CredentialProvider, DeferredRefreshableCredentials

ASSUME_ROLE = "AssumeRole"
_SESSION_NAME = "penstock"
_SESSION_S = 3_600  # the longest that AWS gives to a role that another role assumes
_STS = Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=1, read_timeout=3)


def statement_id(role_arn: str) -> str:
    """The id of the statement that lets the role in. Roles of other stages have other ids in the same policy."""
    return "".join(word.capitalize() for word in re.findall("[A-Za-z0-9]+", role_arn.rpartition("/")[2]))


def session_of_role(own: botocore.session.Session, role_arn: str, endpoint_url: str | None) -> botocore.session.Session:
    """A session under the role, which `own` may assume. Its first call assumes the role, and one call each hour."""
    session = botocore.session.get_session()
    session.get_component("credential_provider").insert_before("env", _RoleProvider(own, role_arn, endpoint_url))
    session.set_config_variable("region", own.get_config_variable("region"))
    return session


class _RoleProvider(CredentialProvider):  # type: ignore[misc]  # botocore has no types
    METHOD = "penstock-targets"

    def __init__(self, own: botocore.session.Session, role_arn: str, endpoint_url: str | None) -> None:
        super().__init__()
        self._own = own
        self._role_arn = role_arn
        self._endpoint_url = endpoint_url

    def load(self) -> DeferredRefreshableCredentials:
        return DeferredRefreshableCredentials(refresh_using=self._assume, method=self.METHOD)

    def _assume(self) -> dict[str, Any]:
        sts = self._own.create_client("sts", config=_STS, endpoint_url=self._endpoint_url)
        answer = sts.assume_role(RoleArn=self._role_arn, RoleSessionName=_SESSION_NAME, DurationSeconds=_SESSION_S)
        found = answer["Credentials"]
        return {
            "access_key": found["AccessKeyId"],
            "secret_key": found["SecretAccessKey"],
            "token": found["SessionToken"],
            "expiry_time": found["Expiration"].isoformat(),
        }
