"""The stack of a stage, synthesized without CloudFormation's built-in validation and with empty assets."""

import os

os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "18,20")

from pathlib import Path
from typing import Any

from aws_cdk import App, Environment, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk.assertions import Template

from penstock_cdk import Penstock, StageSettings
from penstock_cdk.jobs.job_packages import JobPackages, job_scripts
from penstock_cdk.shipment import Shipment
from penstock_cdk.sources import installed_sources


def synthesized_resources(settings: StageSettings, folder: Path) -> dict[str, Any]:
    """The resources of a stage's template. Assets and output lie in `folder`."""
    resources: dict[str, Any] = Template.from_stack(stack_of(settings, folder)).to_json()["Resources"]
    return resources


def stack_of(settings: StageSettings, folder: Path) -> Stack:
    """The stack of app.py, in an app of its own. Assets and output lie in `folder`."""
    app = App(outdir=str(folder / settings.name), builtin_cloud_formation_validation=False)
    stack = Stack(app, "Penstock", env=Environment(region=settings.region))
    Penstock(stack, "Default", settings=settings, shipment=empty_shipment(settings, folder))
    return stack


def empty_shipment(settings: StageSettings, folder: Path) -> Shipment:
    """Files with nothing in them. They lie in `folder`."""
    code = folder / "code"
    code.mkdir(exist_ok=True)
    (code / "penstock_handlers.py").touch()
    some_zip = code / "packages.zip"
    some_zip.write_bytes(b"of the jobs")
    packages = JobPackages(
        scripts=job_scripts(installed_sources()),
        packages=some_zip,
        requirements=some_zip,
        dependencies=None if settings.emr_release is None else some_zip,
    )
    return Shipment(code=lambda_.Code.from_asset(str(code)), packages=packages)
