"""Lets MiniStack ask IAM about wake-ups, as AWS does. It takes each signature for one of somebody who may.

A connection asks for `appsync:EventConnect` on the API. A publication and a subscription ask for their action on the
channel's namespace, whatever the rest of the channel (Service Authorization Reference, "Actions, resources, and
condition keys for AWS AppSync"). It imports nothing of Penstock, because MiniStack's Python runs it.
"""

import re
from types import ModuleType
from typing import Any

_OPERATION, _CHECK, _NAMESPACE = "_operation_auth_modes", "_modes_accept", "_channel_namespace_for"
_SIGNED = re.compile(r"AWS4-HMAC-SHA256 +Credential=([^/, ]+)/\d{8}/([^/, ]+)/appsync/aws4_request,.*")


class Asked(set[str]):
    """The kinds of authorization that an operation takes, with the operation's action and resource of IAM."""

    def __init__(self, modes: set[str], action: str, resource: str) -> None:
        super().__init__(modes)
        self.action, self.resource = action, resource


def add_event_policies(events: ModuleType | Any, evaluator: ModuleType | Any) -> None:
    """Changes MiniStack's module of AppSync Events. `evaluator` is its module of policies.

    Raises RuntimeError if it checks operations in another way: look what has changed.
    """
    if not all(hasattr(events, name) for name in (_OPERATION, _CHECK, _NAMESPACE)):
        raise RuntimeError("MiniStack checks events in another way now: look at localstack/event_policies.py")
    own_modes, own_check = events._operation_auth_modes, events._modes_accept
    actions = {
        events.EVENT_CONNECT: "appsync:EventConnect",
        events.EVENT_SUBSCRIBE: "appsync:EventSubscribe",
        events.EVENT_PUBLISH: "appsync:EventPublish",
    }

    def operation_auth_modes(api_id: str, channel: str | None, operation: str) -> Asked:
        resource = events._api_arn(api_id)
        if operation != events.EVENT_CONNECT:
            resource = events._channel_namespace_arn(api_id, events._channel_namespace_for(channel or ""))
        return Asked(own_modes(api_id, channel, operation), actions[operation], resource)

    def modes_accept(api_id: str, modes: Asked, auth: Any) -> tuple[bool, str | None]:
        is_accepted, why = own_check(api_id, modes, auth)
        signed = _SIGNED.fullmatch(_authorization(auth))
        if not is_accepted or signed is None:
            return is_accepted, why
        denied = evaluator.enforce(signed[1], modes.action, "appsync", signed[2], resource_arn=modes.resource)
        return (True, None) if denied is None else (False, f"not authorized to perform {modes.action}")

    setattr(events, _OPERATION, operation_auth_modes)
    setattr(events, _CHECK, modes_accept)


def _authorization(auth: Any) -> str:
    fields = auth if isinstance(auth, dict) else {}
    return next((str(value) for name, value in fields.items() if name.lower() == "authorization"), "")
