"""The CloudFormation types that MiniStack lacks: they make, change and remove what its AppSync Events has."""

import json
from typing import Any

import pytest

from localstack.event_api_types import API, CHANNEL_NAMESPACE, Handlers, add_event_api_types


class Events:
    """MiniStack's module of AppSync Events, the part that the handlers call."""

    def __init__(self) -> None:
        self.apis: dict[str, Any] = {}
        self.namespaces: dict[tuple[str, str], Any] = {}

    def _create_api(self, body: bytes) -> Any:
        api_id = f"api{len(self.apis)}"
        self.apis[api_id] = json.loads(body)
        return self._api(api_id)

    def _update_api(self, api_id: str, body: bytes) -> Any:
        self.apis[api_id] = json.loads(body)
        return self._api(api_id)

    def _delete_api(self, api_id: str) -> Any:
        return _answer(200 if self.apis.pop(api_id, None) else 404, {})

    def _create_channel_namespace(self, api_id: str, body: bytes) -> Any:
        fields = json.loads(body)
        if not fields["name"].isalnum():
            return _answer(400, {"message": "the name is wrong"})
        self.namespaces[api_id, fields["name"]] = fields
        return self._namespace(api_id, fields["name"])

    def _update_channel_namespace(self, api_id: str, name: str, body: bytes) -> Any:
        self.namespaces[api_id, name] = json.loads(body)
        return self._namespace(api_id, name)

    def _delete_channel_namespace(self, api_id: str, name: str) -> Any:
        return _answer(200 if self.namespaces.pop((api_id, name), None) else 404, {})

    def _api(self, api_id: str) -> Any:
        dns = {"HTTP": f"{api_id}.appsync-api", "REALTIME": f"{api_id}.appsync-realtime-api"}
        return _answer(200, {"api": {"apiId": api_id, "apiArn": f"arn:apis/{api_id}", "dns": dns}})

    def _namespace(self, api_id: str, name: str) -> Any:
        arn = f"arn:apis/{api_id}/channelNamespace/{name}"
        return _answer(200, {"channelNamespace": {"channelNamespaceArn": arn}})


def _answer(status: int, body: Any) -> Any:
    return status, {}, json.dumps(body).encode()


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def handlers(events: Events) -> Handlers:
    table: Handlers = {}
    add_event_api_types(table, events)
    return table


PROPS = {"Name": "penstock", "EventConfig": {"AuthProviders": [{"AuthType": "AWS_IAM"}]}}


def test_api_is_made_changed_and_removed(handlers: Handlers, events: Events) -> None:
    physical_id, attributes = handlers[API]["create"]("Logical", PROPS, "Stack")
    assert attributes["Dns.Http"] == attributes["Dns"]["Http"] == "api0.appsync-api"
    assert (attributes["ApiId"], attributes["Dns.Realtime"]) == ("api0", "api0.appsync-realtime-api")
    assert events.apis["api0"] == {"name": "penstock", "eventConfig": {"authProviders": [{"authType": "AWS_IAM"}]}}
    changed = {**PROPS, "Name": "other"}
    assert handlers[API]["update"](physical_id, PROPS, changed, "Stack") == (physical_id, attributes)
    assert events.apis["api0"]["name"] == "other"
    handlers[API]["delete"](physical_id, changed)
    handlers[API]["delete"](physical_id, changed)
    assert events.apis == {}


def test_tags_of_a_template_become_a_map(handlers: Handlers, events: Events) -> None:
    tagged = {**PROPS, "Tags": [{"Key": "penstock:stage", "Value": "local"}]}
    handlers[API]["create"]("Logical", tagged, "Stack")
    assert events.apis["api0"]["tags"] == {"penstock:stage": "local"}


def test_namespace_is_made_changed_replaced_and_removed(handlers: Handlers, events: Events) -> None:
    old = {"ApiId": "api0", "Name": "wake"}
    physical_id, attributes = handlers[CHANNEL_NAMESPACE]["create"]("Logical", old, "Stack")
    assert attributes == {"ChannelNamespaceArn": "arn:apis/api0/channelNamespace/wake"}
    changed = {**old, "SubscribeAuthModes": [{"AuthType": "AWS_IAM"}]}
    assert handlers[CHANNEL_NAMESPACE]["update"](physical_id, old, changed, "Stack")[0] == physical_id
    assert events.namespaces["api0", "wake"]["subscribeAuthModes"] == [{"authType": "AWS_IAM"}]
    other = {**changed, "Name": "other"}
    assert handlers[CHANNEL_NAMESPACE]["update"](physical_id, changed, other, "Stack")[0] != physical_id
    assert set(events.namespaces) == {("api0", "other")}
    handlers[CHANNEL_NAMESPACE]["delete"]("", other)
    handlers[CHANNEL_NAMESPACE]["delete"]("", other)
    assert events.namespaces == {}


def test_refusal_of_the_service_fails_the_stack(handlers: Handlers) -> None:
    with pytest.raises(ValueError, match="the name is wrong"):
        handlers[CHANNEL_NAMESPACE]["create"]("Logical", {"ApiId": "api0", "Name": "a_b"}, "Stack")


def test_newer_emulator_with_the_types_is_told(events: Events) -> None:
    with pytest.raises(RuntimeError, match="remove"):
        add_event_api_types({API: {}}, events)
