"""The wheel brings no name that an application could have too, and is enough for a first record. A module that needs
an extra says which, where the extra is not installed.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.docs.outputs import differs
from tests.docs.snippets import snippets_of
from tests.support.child_process import bare_environment, child_process
from tests.support.wheel import CHECKOUT, PACKAGE_FOLDERS, build_wheel

_SERVES_S_MAX = 600.0


@pytest.mark.slow
def test_wheel_holds_the_packages_of_penstock_only(tmp_path: Path) -> None:
    with ZipFile(build_wheel(tmp_path)) as archive:
        names = set(archive.namelist())
    packages = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert packages == {
        "penstock",
        "penstock_kafka",
        "penstock_import",
        "penstock_kombu",
        "penstock_core",
        "penstock_service",
        "penstock_handlers",
        "penstock_spark",
        "penstock_cdk",
    }
    sources = {
        str(path.relative_to(CHECKOUT / folder))
        for folder in PACKAGE_FOLDERS
        for path in (CHECKOUT / folder).glob("*/**/*.py")
    }
    assert sources <= names, "a room without __init__.py is left out of the wheel"
    console = CHECKOUT / "sdk/penstock/console"
    files = {
        str(path.relative_to(CHECKOUT / "sdk"))
        for folder in ("templates", "static")
        for path in (console / folder).iterdir()
    }
    assert files
    assert files <= names, "a template or a file of the console is left out of the wheel"
    assert {"penstock_cdk/locks/lambda.txt", "penstock_cdk/locks/jobs.txt", "penstock/cost/counted.json"} <= names


@pytest.mark.minutes
def test_first_program_of_the_readme_runs_on_the_wheel_alone(tmp_path: Path) -> None:
    """In an empty environment, outside of the checkout, with nothing of Penstock but the wheel."""
    build_wheel(tmp_path)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    (work := tmp_path / "work").mkdir()
    [wheel] = tmp_path.glob("*.whl")
    begin, program, first_run, *_ = (each for each in snippets_of(CHECKOUT / "README.md") if each.language != "text")
    _make_environment, install, serve = begin.text.splitlines()
    environment = _plain_environment(tmp_path / "venv" / "bin")
    _run(install.replace(".[dev]", f"{wheel}[dev]"), work, environment)
    assert program.file is not None
    (work / program.file).write_text(program.text)
    with child_process(
        ["bash", "-c", serve.replace("penstock dev", "exec penstock dev --port 0")],
        deadline_s=_SERVES_S_MAX,
        cwd=work,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        assert "runs at http://127.0.0.1:" in server.stdout.readline()
        for line in server.stdout:  # it says its next steps, and then waits
            if "consume" in line:
                break
        assert first_run.output is not None
        assert differs(first_run.output, _run(first_run.text, work, environment)) is None
        server.send_signal(signal.SIGTERM)
        server.communicate()
    assert server.returncode == 0


def _plain_environment(bin_folder: Path) -> Mapping[str, str]:
    """The environment of a shell in which only the virtual environment is active."""
    unwanted = re.compile(r"AWS_|PENSTOCK_|PYTHON|VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not unwanted.match(name)}
    return {**kept, "PATH": f"{bin_folder}{os.pathsep}{kept.get('PATH', '')}"}


def _run(command: str, folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [
        ("penstock.testing", "aws_lambda_powertools", "testing"),
        ("penstock_spark", "boto3", "spark"),
        ("penstock_spark", "pyspark", "spark"),
        ("penstock_import.source.confluent", "confluent_kafka", "import"),
        ("penstock_kombu", "kombu", "celery"),
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
