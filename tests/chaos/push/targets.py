"""The targets of a run: the functions as their users deploy them, the addresses of the endpoint, and a topic."""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localstack.places import CHECKOUT
from tests.chaos.push import target_function
from tests.chaos.push.endpoint import SECRET, url_of
from tests.chaos.push.subscriptions import BY_ENDPOINT, FUNCTIONS, IN_ORDER, MIRROR, MIRRORED
from tests.end_to_end.local_stack import Stack

DELIVER = "penstock-deliver"
_PREFIX = "chaos-"
_TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"},
    ],
}
_PACKED = (
    *("__init__.py", "chaos/__init__.py", "chaos/clients/__init__.py", "chaos/clients/values.py"),
    *("chaos/push/__init__.py", "chaos/push/recording_target.py", "chaos/push/target_function.py"),
    *("history/__init__.py", "history/fields.py", "history/format.py", "history/recorder.py"),
    "history/micro_ops.py",
)


def deploy_targets(stack: Stack, folder: Path, endpoint_port: int) -> dict[str, Mapping[str, Any]]:
    """The target of each subscription, as the API has it. The functions write their histories into `folder`."""
    functions = {name: {"lambda": _deploy(stack, folder, name)} for name in FUNCTIONS}
    endpoints = {name: {"https": {"url": url_of(endpoint_port, name), "secret": SECRET}} for name in BY_ENDPOINT}
    return {**functions, **endpoints, MIRROR: {"topic": MIRRORED}}


def function_name(subscription: str) -> str:
    """The name of the function that is its target."""
    return f"{_PREFIX}{subscription}"


def packed() -> bytes:
    """The code of a target function, as a zip."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in _PACKED:
                archive.write(CHECKOUT / "tests" / path, f"tests/{path}")
        return file.getvalue()


def _deploy(stack: Stack, folder: Path, subscription: str) -> str:
    """The ARN of a function that lets the service in."""
    lambdas, name = stack.root_client("lambda"), function_name(subscription)
    role = stack.root_client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(_TRUST))
    variables = {
        target_function.FOLDER: str(folder),
        target_function.SUBSCRIPTION: subscription,
        target_function.IS_ORDERED: "yes" if subscription == IN_ORDER else "no",
    }
    arn = lambdas.create_function(
        FunctionName=name,
        Runtime="python3.11",
        Role=role["Role"]["Arn"],
        Handler=f"{target_function.__name__}.handler",
        Code={"ZipFile": packed()},
        Timeout=30,
        Environment={"Variables": variables},
    )["FunctionArn"]
    lambdas.add_permission(
        FunctionName=name, StatementId="penstock", Action="lambda:InvokeFunction", Principal=_targets_role(lambdas)
    )
    return str(arn)


def _targets_role(lambdas: Any) -> str:
    """The role under which the service calls targets."""
    variables = lambdas.get_function_configuration(FunctionName=DELIVER)["Environment"]["Variables"]
    return str(variables["PENSTOCK_TARGETS"].partition(",")[0])
