"""`penstock config show --stack` against the template of the deployed stack."""

import json

import pytest
from click.testing import CliRunner, Result

from localstack.clients import ROOT_KEY
from penstock.cli import main
from tests.end_to_end.local_stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.minutes]


@pytest.fixture(autouse=True)
def _environment(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", stack.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", stack.endpoint_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ROOT_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ROOT_KEY)


def show(stack: Stack, name: str) -> Result:
    return CliRunner().invoke(main, ["config", "show", "--stack", name, "--region", stack.region, "--json"])


def test_stage_is_as_the_deployed_template_tells_it(stack: Stack) -> None:
    result = show(stack, "Penstock")
    assert result.exit_code == 0, result.output
    found = {each["setting"]: (each["value"], each["source"]) for each in json.loads(result.stdout)["stage"]}
    told = {name: found[name] for name in ("name", "storage_profile", "log_level", "has_alarms", "timer_retry_s")}
    assert told == {
        "name": ("penstock", "stage"),
        "storage_profile": ("local", "stage"),
        "log_level": ("DEBUG", "stage"),
        "has_alarms": (False, "stage"),
        "timer_retry_s": (60, "default"),
    }


@pytest.mark.parametrize(("name", "told"), [("Nope", "does not exist"), ("Penstock/Other", "tells no settings")])
def test_stack_that_cannot_be_shown_is_an_error(stack: Stack, name: str, told: str) -> None:
    result = show(stack, name)
    assert result.exit_code != 0
    assert told in result.output


def test_caller_without_the_right_is_told_so(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", stack.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", stack.secret_access_key)
    result = show(stack, "Penstock")
    assert result.exit_code != 0
    assert "cloudformation:GetTemplate" in result.output
