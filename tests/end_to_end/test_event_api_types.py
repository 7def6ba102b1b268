"""CloudFormation makes, changes and removes an Event API on the local stack (localstack/event_api_types.py)."""

import json
from typing import Any

import pytest

from tests.end_to_end.local_stack import Stack
from tests.support.deadlines import until

pytestmark = pytest.mark.stack
NAME = "EventApiOnly"


def _template(api_name: str, *namespaces: str) -> str:
    iam = [{"AuthType": "AWS_IAM"}]
    modes = ("ConnectionAuthModes", "DefaultPublishAuthModes", "DefaultSubscribeAuthModes")
    config = {"AuthProviders": iam, **dict.fromkeys(modes, iam)}
    resources: dict[str, Any] = {
        "Api": {"Type": "AWS::AppSync::Api", "Properties": {"Name": api_name, "EventConfig": config}}
    }
    for number, namespace in enumerate(namespaces):
        properties = {"ApiId": {"Fn::GetAtt": ["Api", "ApiId"]}, "Name": namespace}
        resources[f"Namespace{number}"] = {"Type": "AWS::AppSync::ChannelNamespace", "Properties": properties}
    host = {"Value": {"Fn::GetAtt": ["Api", "Dns.Http"]}}
    return json.dumps({"Resources": resources, "Outputs": {"Host": host}})


def test_stack_with_an_event_api_is_created_updated_and_deleted(stack: Stack) -> None:
    cloudformation, appsync = stack.root_client("cloudformation"), stack.root_client("appsync")

    def apis(*names: str) -> dict[str, str]:
        return {api["name"]: api["apiId"] for api in appsync.list_apis()["apis"] if api["name"] in names}

    def namespaces(api_id: str) -> set[str]:
        return {each["name"] for each in appsync.list_channel_namespaces(apiId=api_id)["channelNamespaces"]}

    def ended() -> Any:
        [found] = cloudformation.describe_stacks(StackName=NAME)["Stacks"]
        return found if not found["StackStatus"].endswith("_IN_PROGRESS") else None

    cloudformation.create_stack(StackName=NAME, TemplateBody=_template("first", "one"))
    until(lambda: ended() is not None)
    [output] = ended()["Outputs"]
    api_id = apis("first")["first"]
    assert output["OutputValue"].startswith(f"{api_id}.appsync-api.")
    assert namespaces(api_id) == {"one"}
    cloudformation.update_stack(StackName=NAME, TemplateBody=_template("second", "two", "three"))
    until(lambda: ended() is not None)
    assert ended()["StackStatus"] == "UPDATE_COMPLETE"
    assert apis("first", "second") == {"second": api_id}
    assert namespaces(api_id) == {"two", "three"}
    cloudformation.delete_stack(StackName=NAME)
    until(lambda: not apis("first", "second"))
