"""A stack of a user's own with a Penstock in it, synthesized and deployed to the emulator next to the stage."""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "18,20")

from aws_cdk import App, Stack

from localstack.deploy import deploy
from penstock import Admin
from penstock.configuration import Configuration
from penstock.http.transport import HttpTransport
from penstock_cdk import STAGES, Penstock
from tests.end_to_end.local_stack import Stack as LocalStack

NAME = "Shop"
SETTINGS = replace(STAGES["local"], name="shop")
ANY_ROUTE = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": "*"}],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStack:
    """The stack by its outputs. `transport` signs as a user who may call every route of every API."""

    local: LocalStack
    outputs: Mapping[str, str]
    url: str
    transport: HttpTransport
    configuration: Configuration

    def admin(self) -> Admin:
        """Makes a client of this stack's Penstock."""
        return Admin(transport=self.transport)


def deploy_own(local: LocalStack, folder: Path, declare: Callable[[Penstock], object]) -> OwnStack:
    """Deploys the stack with what `declare` adds to its Penstock. Raises LocalStackError with the reason."""

    def make(app: App) -> None:
        declare(Penstock(Stack(app, NAME), "Queue", settings=SETTINGS))

    return deploy_app(local, folder, make)


def deploy_app(local: LocalStack, folder: Path, make: Callable[[App], object]) -> OwnStack:
    """Deploys the stack that `make` adds to an app. Its Penstock is `Queue`. Raises LocalStackError with the reason."""
    shutil.rmtree(folder, ignore_errors=True)
    app = App(outdir=str(folder), builtin_cloud_formation_validation=False)
    make(app)
    app.synth()
    return opened(local, deploy(folder, int(local.endpoint_url.rpartition(":")[2]), NAME))


def opened(local: LocalStack, outputs: Mapping[str, str]) -> OwnStack:
    """The deployed stack with these outputs."""
    iam = local.root_client("iam")
    user = f"user-{outputs['QueueApiId']}"
    if user not in {each["UserName"] for each in iam.list_users()["Users"]}:
        key, secret = local.create_user(user, ANY_ROUTE)
        iam.tag_user(UserName=user, Tags=[{"Key": "secret", "Value": secret}, {"Key": "id", "Value": key}])
    tags = {each["Key"]: each["Value"] for each in iam.list_user_tags(UserName=user)["Tags"]}
    signing = local.configuration(tags["id"], tags["secret"])
    url = f"{local.endpoint_url}/_aws/execute-api/{outputs['QueueApiId']}"
    own = Configuration(url=url, region=signing.region, credentials=signing.credentials)
    return OwnStack(local=local, outputs=outputs, url=url, transport=HttpTransport(own), configuration=own)
