"""The CDK app: `cdk deploy` installs a stage of Penstock (`-c stage=local|dev|prod`, by default prod).

`-c region=REGION` and `-c profile=express3|express2|standard1` go before the stage's settings.
"""

import os
import sys
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_

from penstock_cdk.assets import functions_asset
from penstock_cdk.jobs.job_packages import job_packages
from penstock_cdk.overrides import settings_of_app
from penstock_cdk.stack import PenstockStack


def main() -> None:
    """Synthesizes the stage that the context names."""
    app = cdk.App()
    try:
        settings = settings_of_app(app.node.get_all_context(), os.environ.get("CDK_DEFAULT_REGION"))
    except ValueError as error:
        sys.exit(f"penstock: {error}")
    root = Path(__file__).parent
    asset = functions_asset(root, settings=settings)
    account = os.environ.get("CDK_DEFAULT_ACCOUNT")
    stack = PenstockStack(
        app,
        "Penstock",
        stack_name=settings.name.title().replace("-", ""),
        settings=settings,
        packages=job_packages(root, settings=settings),
        code=lambda_.Code.from_asset(
            str(asset.path), asset_hash=asset.content_hash, asset_hash_type=cdk.AssetHashType.CUSTOM
        ),
        env=cdk.Environment(account=account, region=settings.region),
        termination_protection=settings.keeps_data_on_delete,
    )
    if not asset.is_compiled:
        cdk.Annotations.of(stack).add_warning_v2(
            "penstock:asset-without-bytecode",
            f"python{settings.python_version} is not on the PATH, so the functions are not compiled: "
            "each cold start takes about 0.6 s longer",
        )
    app.synth()


main()
