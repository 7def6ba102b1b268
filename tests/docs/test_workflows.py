"""Workflows and hooks call targets and options that exist, and workflows have no more rights than they need."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from localstack.places import CHECKOUT
from penstock.cli import main as penstock
from tests.simulation.__main__ import main as simulation

GITHUB = CHECKOUT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(set((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) - {GITHUB / "ISSUE_TEMPLATE" / "config.yml"})
TARGETS = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))


def _name(path: Path) -> str:
    return path.stem


def _load(path: Path) -> dict[Any, Any]:
    return dict(yaml.safe_load(path.read_text()))


def _steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in _load(path)["jobs"].values() for step in job["steps"]]


def _targets(script: str) -> set[str]:
    return set(re.findall(r"^\s*make ([a-z-]+)", script, re.MULTILINE))


def test_workflows_are_those_that_contributing_promises() -> None:
    assert [path.stem for path in WORKFLOWS] == ["check", "nightly", "release", "test"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=_name)
def test_workflow_may_only_read_the_sources(workflow: Path) -> None:
    loaded = _load(workflow)
    assert loaded["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in loaded["jobs"].values())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=_name)
def test_workflow_ends_in_a_bounded_time(workflow: Path) -> None:
    assert all(0 < job["timeout-minutes"] <= 180 for job in _load(workflow)["jobs"].values())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=_name)
def test_actions_are_pinned_by_version(workflow: Path) -> None:
    used = [step["uses"] for step in _steps(workflow) if "uses" in step]
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40})", each)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=_name)
def test_make_targets_of_a_workflow_exist(workflow: Path) -> None:
    called = set().union(*(_targets(step.get("run", "")) for step in _steps(workflow)))
    assert "setup" in called
    assert called <= TARGETS


def test_check_runs_on_each_push() -> None:
    loaded = _load(GITHUB / "workflows" / "check.yml")
    assert loaded[True] == {"push": None}  # YAML 1.1 reads `on` as true
    assert any("make check" in step.get("run", "") for step in _steps(GITHUB / "workflows" / "check.yml"))


def test_tests_run_on_every_python_that_we_support() -> None:
    [job] = _load(GITHUB / "workflows" / "test.yml")["jobs"].values()
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert any("make test" in step.get("run", "") for step in job["steps"])


def test_nightly_seeds_are_new_each_night_and_kept_when_one_fails() -> None:
    workflow = GITHUB / "workflows" / "nightly.yml"
    [run] = [step["run"] for step in _steps(workflow) if "tests.simulation" in step.get("run", "")]
    known = {option for parameter in simulation.params for option in parameter.opts}
    assert set(re.findall(r"--[a-z-]+", run)) <= known
    assert "date -u" in run
    [kept] = [step for step in _steps(workflow) if "upload-artifact" in step.get("uses", "")]
    assert kept["if"] == "failure()"
    assert f"> {kept['with']['path']}" in run


def test_release_builds_what_a_user_installs() -> None:
    """The image holds its locked packages, runs as nobody special, and begins with commands that exist."""
    run = [step["run"] for step in _steps(GITHUB / "workflows" / "release.yml") if "run" in step]
    assert {"make dist", "make image"} <= {*run}
    image = (CHECKOUT / "Dockerfile").read_text()
    assert re.search(r"^FROM python:3\.\d+\.\d+-slim-\w+$", image, re.MULTILINE)
    assert "--require-hashes --requirement /tmp/requirements.txt" in image
    assert re.search(r"^USER penstock$", image, re.MULTILINE)
    command, *arguments = json.loads(image[image.rindex("CMD ") + 4 :])
    found = penstock.get_command(click.Context(penstock), command)
    assert found is not None
    options = {option for parameter in found.params for option in parameter.opts}
    assert {each for each in arguments if each.startswith("--")} <= options


def test_image_has_the_packages_that_its_commands_name() -> None:
    locked = {
        line.partition("==")[0] for line in (CHECKOUT / "requirements" / "container.txt").read_text().splitlines()
    }
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        re.split(r"[\[>=<]", each)[0] for extra in ("async", "console", "testing", "kafka") for each in extras[extra]
    }
    assert named <= locked


def test_hooks_before_a_commit_are_make_targets() -> None:
    [local] = _load(CHECKOUT / ".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    assert {target for hook in local["hooks"] for target in _targets(hook["entry"])} == {"fmt", "lint"}
    assert {"fmt", "lint"} <= TARGETS


@pytest.mark.parametrize("form", FORMS, ids=_name)
def test_issue_forms_ask_something(form: Path) -> None:
    loaded = _load(form)
    assert loaded["name"]
    assert loaded["description"]
    fields = [field for field in loaded["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields) > 0
    assert any(field.get("validations", {}).get("required") for field in fields)
