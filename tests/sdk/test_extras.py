"""A module that needs an extra says which, where the extra is not installed."""

import subprocess
import sys

import pytest

from tests.support.child_process import bare_environment


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [
        ("penstock.testing", "aws_lambda_powertools", "testing"),
        ("penstock_spark", "boto3", "spark"),
        ("penstock_spark", "pyspark", "spark"),
        ("penstock_import.source.confluent", "confluent_kafka", "import"),
    ],
)
def test_import_without_its_extra_names_the_extra(module: str, missing: str, extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules[{missing!r}] = None; import {module}"],
        capture_output=True,
        check=False,
        env=bare_environment(),
    )
    said = done.stderr.decode().splitlines()[-1]
    assert said.startswith("ModuleNotFoundError: ")
    assert missing in said
    assert f"{module} needs `pip install 'penstock[{extra}]'`" in said


@pytest.mark.slow
@pytest.mark.parametrize(("name", "missing"), [("embedded", "boto3"), ("embedded", "aws_lambda_powertools")])
def test_client_without_the_extra_of_its_transport_names_the_extra(name: str, missing: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; from penstock import Admin; Admin(transport={name!r})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, env=bare_environment())
    said = done.stderr.decode().splitlines()[-1]
    assert said.startswith("penstock.errors.NotConfiguredError: ")
    assert f"transport={name!r} needs `pip install 'penstock[{name}]'`" in said
