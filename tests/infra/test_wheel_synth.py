"""An app that has nothing but the wheel synthesizes the same Penstock as a checkout."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from penstock_cdk.assets import functions_asset
from penstock_cdk.jobs.job_packages import job_scripts, packages_zip
from penstock_cdk.settings import settings_of
from penstock_cdk.sources import installed_sources
from tests.support.wheel import build_wheel

pytestmark = [pytest.mark.synth, pytest.mark.slow]
APP = """
import aws_cdk as cdk
from penstock_cdk import STAGES, Penstock

app = cdk.App()
stack = cdk.Stack(app, "Shop")
Penstock(stack, "Queue", settings=STAGES["local"], name="shop")
app.synth()
"""


def python_with_the_wheel(folder: Path) -> Path:
    """A Python with the wheel, and with the other packages of this one by a path file."""
    wheel = build_wheel(folder)
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    [packages] = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.mark.minutes
def test_app_outside_of_the_checkout_makes_the_same_asset(tmp_path: Path) -> None:
    sources = installed_sources()
    expected = functions_asset(sources, settings=settings_of("local"))
    app = tmp_path / "shop"
    dependencies = expected.path.with_name("packages.zip")
    kept = app / ".penstock" / "assets" / dependencies.parent.name
    kept.mkdir(parents=True)
    shutil.copy(dependencies, kept)  # pip need not load them again
    (app / "app.py").write_text(APP)
    done = subprocess.run(
        [str(python_with_the_wheel(tmp_path)), "app.py"],
        cwd=app,
        env={
            "PATH": os.environ["PATH"],
            "CDK_OUTDIR": "cdk.out",
            "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "18,20",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = [path.name for path in (app / ".penstock" / "assets").rglob("*.zip")]
    assert f"{expected.content_hash}.zip" in made
    assert [name for name in made if name.startswith("packages-")] == [packages_zip(sources).name]
    template = json.loads((app / "cdk.out" / "Shop.template.json").read_text())
    assert {f"QueueJob{job.title()}Script" for job in job_scripts(sources)} <= set(template["Outputs"])
