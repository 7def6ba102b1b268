"""The CDK app: `cdk deploy` installs a stage of Penstock (`-c stage=NAME`, by default prod).

`-c settings=FILE` goes before the settings of the stage, and `-c NAME=VALUE` before those of the file.
"""

import os
import sys
from functools import partial

import aws_cdk as cdk
import botocore.session

from penstock_cdk import Penstock, settings_of_app
from penstock_cdk.account import check_account
from penstock_cdk.overrides import asks_account
from penstock_cdk.settings import stack_name


def main() -> None:
    """Synthesizes the stage that the context names."""
    app = cdk.App()
    context, account = app.node.get_all_context(), os.environ.get("CDK_DEFAULT_ACCOUNT")
    warnings: list[str] = []
    try:
        settings = settings_of_app(context, os.environ.get("CDK_DEFAULT_REGION"))
        if asks_account(context) and account is not None:
            clients = partial(botocore.session.Session().create_client, region_name=settings.region)
            warnings = check_account(settings, account, clients)
    except ValueError as error:
        sys.exit(f"penstock: {error}")
    stack = cdk.Stack(
        app,
        "Penstock",
        stack_name=stack_name(settings),
        env=cdk.Environment(account=account, region=settings.region),
        termination_protection=settings.keeps_data_on_delete,
    )
    for number, warning in enumerate(warnings):
        cdk.Annotations.of(stack).add_warning_v2(f"penstock:account-{number}", warning)
    # The CDK leaves this id out of names: the resources of a stage are the same as before there was a construct.
    Penstock(stack, "Default", settings=settings)
    app.synth()


main()
