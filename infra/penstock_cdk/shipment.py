"""The files that functions and jobs consist of. The first synthesis builds them, without Docker."""

import sys
from dataclasses import dataclass

from aws_cdk import Annotations, AssetHashType
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from penstock_cdk.assets import functions_asset
from penstock_cdk.jobs.job_packages import JobPackages, job_packages
from penstock_cdk.settings import StageSettings
from penstock_cdk.sources import installed_sources

_OWN_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """The code of all functions, as one asset, and the files that Spark jobs are sent with."""

    code: lambda_.Code
    packages: JobPackages


def built_shipment(scope: Construct, settings: StageSettings) -> Shipment:
    """Builds the files from the packages that this Python imports, and keeps them in .penstock/assets/.

    `cdk synth` and `cdk deploy` refuse a stage whose functions would have no bytecode, with two ways out.
    Raises RuntimeError with the end of pip's output if a dependency has no wheel for the platform of the functions.
    """
    sources = installed_sources()
    asset = functions_asset(sources, settings=settings)
    if not asset.is_compiled:
        version = settings.python_version
        Annotations.of(scope).add_error(
            f"python{version} is not on the PATH, so the functions would have no bytecode: each cold start would take "
            f"about 0.6 s longer, and Lambda bills it. Install it (uv python install {version}), or let the functions "
            f"run on the Python that you have: python_version, with app.py by `-c python_version={_OWN_VERSION}`"
        )
    return Shipment(
        code=lambda_.Code.from_asset(
            str(asset.path), asset_hash=asset.content_hash, asset_hash_type=AssetHashType.CUSTOM
        ),
        packages=job_packages(sources, settings=settings),
    )
