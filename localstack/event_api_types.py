"""Gives MiniStack the CloudFormation types of AppSync Events. It has the service, and not the types.

A handler turns a resource's properties into the body of the service's own call: PascalCase keys become camelCase. It
imports nothing of Penstock, because MiniStack's Python runs it.
"""

import json
from collections.abc import Callable, MutableMapping
from types import ModuleType
from typing import Any

API = "AWS::AppSync::Api"
CHANNEL_NAMESPACE = "AWS::AppSync::ChannelNamespace"

Handlers = MutableMapping[str, dict[str, Callable[..., Any]]]
Created = tuple[str, dict[str, Any]]


def add_event_api_types(handlers: Handlers, events: ModuleType | Any) -> None:
    """Puts the two types into MiniStack's table of handlers. `events` is its module of the service.

    Raises RuntimeError if the table has one of them: then a newer MiniStack does not need this.
    """
    if API in handlers or CHANNEL_NAMESPACE in handlers:
        raise RuntimeError("MiniStack has the types of AppSync Events now: remove localstack/event_api_types.py")
    apis, namespaces = _Apis(events), _Namespaces(events)
    handlers[API] = {"create": apis.create, "update": apis.update, "delete": apis.delete}
    handlers[CHANNEL_NAMESPACE] = {
        "create": namespaces.create,
        "update": namespaces.update,
        "delete": namespaces.delete,
    }


class _Apis:
    """AWS::AppSync::Api. Its physical id is its ARN, as in AWS."""

    def __init__(self, events: Any) -> None:
        self._events = events

    def create(self, _logical_id: str, props: dict[str, Any], _stack: str) -> Created:
        return self._described(_checked(self._events._create_api(_body(props)))["api"])

    def update(self, physical_id: str, _old: dict[str, Any], props: dict[str, Any], _stack: str) -> Created:
        answer = _checked(self._events._update_api(_last(physical_id), _body(props)))
        return self._described(answer["api"])

    def delete(self, physical_id: str, _props: dict[str, Any]) -> None:
        _checked(self._events._delete_api(_last(physical_id)), may_be_missing=True)

    def _described(self, api: dict[str, Any]) -> Created:
        dns = {"HTTP": api["dns"]["HTTP"], "REALTIME": api["dns"]["REALTIME"]}
        return api["apiArn"], {
            "ApiArn": api["apiArn"],
            "ApiId": api["apiId"],
            "Dns": {"Http": dns["HTTP"], "Realtime": dns["REALTIME"]},
            "Dns.Http": dns["HTTP"],
            "Dns.Realtime": dns["REALTIME"],
        }


class _Namespaces:
    """AWS::AppSync::ChannelNamespace. Its physical id is its ARN; another name or API makes a new one."""

    def __init__(self, events: Any) -> None:
        self._events = events

    def create(self, _logical_id: str, props: dict[str, Any], _stack: str) -> Created:
        answer = _checked(self._events._create_channel_namespace(props["ApiId"], _body(props)))
        return self._described(answer["channelNamespace"])

    def update(self, physical_id: str, old: dict[str, Any], props: dict[str, Any], stack: str) -> Created:
        if (old["ApiId"], old["Name"]) != (props["ApiId"], props["Name"]):
            created = self.create("", props, stack)
            self.delete(physical_id, old)
            return created
        answer = _checked(self._events._update_channel_namespace(props["ApiId"], props["Name"], _body(props)))
        return self._described(answer["channelNamespace"])

    def delete(self, _physical_id: str, props: dict[str, Any]) -> None:
        answer = self._events._delete_channel_namespace(props["ApiId"], props["Name"])
        _checked(answer, may_be_missing=True)  # the deletion of its API takes it along

    def _described(self, namespace: dict[str, Any]) -> Created:
        arn = namespace["channelNamespaceArn"]
        return arn, {"ChannelNamespaceArn": arn}


def _checked(answer: tuple[int, Any, Any], *, may_be_missing: bool = False) -> dict[str, Any]:
    status, _, body = answer
    if status >= 400 and not (may_be_missing and status == 404):
        raise ValueError(f"AppSync Events answers {status}: {body!r:.500}")
    parsed: dict[str, Any] = json.loads(body)
    return parsed


def _body(props: dict[str, Any]) -> bytes:
    """The body of the service's call. Tags are a list of pairs in a template, and a map for the service."""
    body = _camel({name: value for name, value in props.items() if name != "Tags"})
    if "Tags" in props:
        body["tags"] = {each["Key"]: each["Value"] for each in props["Tags"]}
    return json.dumps(body).encode()


def _camel(value: Any) -> Any:
    if isinstance(value, dict):
        return {key[:1].lower() + key[1:]: _camel(each) for key, each in value.items()}
    return [_camel(each) for each in value] if isinstance(value, list) else value


def _last(arn: str) -> str:
    return arn.rpartition("/")[2]
