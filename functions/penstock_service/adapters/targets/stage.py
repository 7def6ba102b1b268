"""Other stages as targets: a push to the API of a stage, signed under a role that the stage trusts.

The role that delivers may assume the roles that its own stage lists (`mirror_roles`), and no other. Each of them asks
for the ARN of the role that delivers as external id. So a caller of our API, who chooses url and role, reaches only
stages that both sides have agreed on.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.mirror.push import MirrorPush, PushAnswer, parse_answer, push_header
from penstock_core.push.batch import Failed, Failure
from penstock_core.push.targets.target import StageTarget
from penstock_core.records import frame
from penstock_service.adapters.direct.places import Keys, Signer
from penstock_service.adapters.https_target import HttpAnswer, HttpsEndpoints
from penstock_service.ports.runtime import Clock

_SERVICE = "execute-api"
_SESSION_NAME = "penstock"
_SESSION_S = 3_600  # the longest that AWS gives to a role that another role assumes
_RENEWED_MS = 300_000  # before a session ends
_SHOWN = 500


KeysOf = Callable[[StageTarget], tuple[Keys, str]]
"""The keys by which a stage is called, and the region of their signature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRoles:
    """Makes a client of STS under the role that delivers, whose ARN is the `external_id` of the other stage's role."""

    sts: Callable[[], Any]
    external_id: str


class Stages:
    """Sends pushes to other stages, each signed with the keys that `keys_of` gives."""

    def __init__(self, endpoints: HttpsEndpoints, clock: Clock, keys_of: KeysOf) -> None:
        self._endpoints = endpoints
        self._clock = clock
        self._keys_of = keys_of

    def check(self, target: StageTarget) -> None:
        """Resolves the host, and gets the keys. Raises INVALID_CONFIG, and ACCESS_DENIED with what is missing."""
        self._endpoints.check(target.url)
        self._keys_of(target)

    def push(self, target: StageTarget, push: MirrorPush, timeout_ms: int) -> PushAnswer | Failed:
        """One POST. A refusal of the stage tells nothing of the records."""
        url = f"{target.url}/v1/mirrors/{push.mirror}/append"
        body = frame.encode(push_header(push), [push.data])
        try:
            answer = self._endpoints.post(url, self._headers(target, url, body), body, timeout_ms)
        except PenstockError as error:
            return Failed(failure=Failure.AWAY, error=error.message)
        if answer.status == 200:
            return _parsed(answer)
        told = answer.body[:_SHOWN].decode(errors="replace").strip()
        return Failed(failure=Failure.AWAY, error=f"status {answer.status}: {told}")

    def _headers(self, target: StageTarget, url: str, body: bytes) -> dict[str, str]:
        headers = {"content-type": frame.FRAME_CONTENT_TYPE}
        parts = urlsplit(url)
        keys, region = self._keys_of(target)
        if keys.token:
            headers["x-amz-security-token"] = keys.token
        signer = Signer(_SERVICE, region, self._clock.now_ms)
        return signer.signed(keys, "POST", parts.netloc, parts.path, headers, sha256(body).hexdigest())


class RoleKeys:
    """The keys of the roles that stages name, each remembered until shortly before they end."""

    def __init__(self, roles: MirrorRoles, clock: Clock) -> None:
        self._roles = roles
        self._clock = clock
        self._keys: dict[str, tuple[int, Keys]] = {}
        self._lock = Lock()

    def of(self, target: StageTarget) -> tuple[Keys, str]:
        """The keys of the target's role, and its region. Raises INVALID_CONFIG, and ACCESS_DENIED."""
        if not (target.role and target.region):
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                "target.stage without role or region: give the role of the other stage that lets this one push, and "
                "its region",
            )
        with self._lock:
            until_ms, keys = self._keys.get(target.role, (0, None))
            if keys is None or self._clock.now_ms() >= until_ms - _RENEWED_MS:
                until_ms, keys = self._assume(target.role)
                self._keys[target.role] = until_ms, keys
            return keys, target.region

    def _assume(self, role: str) -> tuple[int, Keys]:
        from penstock_service.adapters.targets.calls import AWS_ERRORS

        external_id = self._roles.external_id
        try:
            answer = self._roles.sts().assume_role(
                RoleArn=role, RoleSessionName=_SESSION_NAME, DurationSeconds=_SESSION_S, ExternalId=external_id
            )
        except AWS_ERRORS as error:
            raise PenstockError(
                ErrorCode.ACCESS_DENIED,
                f"role {role} cannot be assumed ({error}): list it in mirror_roles of this stage, and let it trust "
                f"{external_id} with this ARN as external id",
            ) from error
        found = answer["Credentials"]
        ends: datetime = found["Expiration"]
        keys = Keys(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])
        return int(ends.timestamp() * 1_000), keys


def _parsed(answer: HttpAnswer) -> PushAnswer | Failed:
    try:
        return parse_answer(json.loads(answer.body))
    except (ValueError, KeyError, TypeError, AttributeError, PenstockError):
        return Failed(failure=Failure.AWAY, error=f"no answer of a mirror: {answer.body[:_SHOWN]!r}")
