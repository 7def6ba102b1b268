"""`penstock doctor` against the deployed functions."""

import json

import boto3
import pytest
from click.testing import CliRunner

from localstack.clients import ROOT_KEY
from penstock.cli import main
from penstock.doctor.account_checks import Account, account_checks
from penstock.doctor.finding import Verdict
from penstock_core.version import VERSION
from tests.end_to_end.local_stack import Stack

pytestmark = pytest.mark.stack


def test_doctor_finds_the_deployed_stack_well_and_leaves_no_topic(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_URL", stack.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", stack.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", stack.secret_access_key)
    result = CliRunner().invoke(main, ["doctor", "--json", "--region", stack.region])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    facts = {each["check"]: (each["verdict"], each["fact"]) for each in report["findings"]}
    assert facts["release"] == ("ok", f"{VERSION}, here and there")
    assert facts["storage profile"] == ("ok", "local, 3 zones")
    assert facts["clock"][0] == facts["zones"][0] == facts["round trip"][0] == "ok"
    assert facts["Lambda concurrency"][0] == "skipped"
    assert 0 < report["cost"]["usd_max"] < 0.01
    listed = CliRunner().invoke(main, ["topics", "list", "--json", "--region", stack.region])
    assert "penstock-doctor-" not in listed.stdout


def test_account_checks_find_the_caller_and_the_stack_of_the_emulator(stack: Stack) -> None:
    """It has no quotas, and answers in ways that AWS does not: no check may fail because of it."""
    session = boto3.Session(aws_access_key_id=ROOT_KEY, aws_secret_access_key=ROOT_KEY, region_name=stack.region)
    account = Account(
        client=lambda service: session.client(service, endpoint_url=stack.endpoint_url),
        stack="Penstock",
        api_url=stack.url,
    )
    found = {finding.check: finding for finding in account_checks(account)}
    assert found["credentials"].verdict is Verdict.OK
    assert found["stack"].verdict in (Verdict.OK, Verdict.MEND)
    assert "Penstock" in found["stack"].fact
