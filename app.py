"""The CDK app: `cdk deploy` installs a stage of Penstock (`-c stage=local|dev|prod`, by default prod).

`-c region=REGION` and `-c profile=express3|express2|standard1` go before the stage's settings.
"""

import os
import sys

import aws_cdk as cdk

from penstock_cdk import Penstock, settings_of_app


def main() -> None:
    """Synthesizes the stage that the context names."""
    app = cdk.App()
    try:
        settings = settings_of_app(app.node.get_all_context(), os.environ.get("CDK_DEFAULT_REGION"))
    except ValueError as error:
        sys.exit(f"penstock: {error}")
    stack = cdk.Stack(
        app,
        "Penstock",
        stack_name=settings.name.title().replace("-", ""),
        env=cdk.Environment(account=os.environ.get("CDK_DEFAULT_ACCOUNT"), region=settings.region),
        termination_protection=settings.keeps_data_on_delete,
    )
    # The CDK leaves this id out of names: the resources of a stage are the same as before there was a construct.
    Penstock(stack, "Default", settings=settings)
    app.synth()


main()
