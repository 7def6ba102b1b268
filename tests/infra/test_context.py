"""What `cdk deploy -c name=value` takes: each wrong name or value is refused, with it and what is allowed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock_cdk.overrides import CONTEXT_NAMES, OVERRIDES, asks_account, overridden, settings_of_app
from penstock_cdk.settings import STAGES

pytestmark = pytest.mark.synth
CHECKOUT = Path(__file__).parents[2]
RESTORED = "topics=t,log=l,groups=g,log_stream=2026"
FUNCTION_NAMES = "produce, fetch, transactions, "
WRONG = (
    ("stage", "Production", "local, dev, prod"),
    ("stage", "a" * 32, "40 at most"),
    ("base", "local", "give prod or dev"),
    ("settings", "nowhere.json", "JSON file that can be read"),
    ("ask", "maybe", "on or off"),
    ("region", "eu_central_1", "eu-central-1"),
    ("region", "Frankfurt", "eu-central-1"),
    ("profile", "express4", "express3, express2, standard1, local"),
    ("profile", "", "express3, express2, standard1, local"),
    ("canary", "on", "off"),
    ("canary", "10", "off"),
    ("alarm_topic_arn", "operators", "arn:aws:sns:"),
    ("alarm_topic_arn", "arn:aws:sqs:us-east-1:123456789012:operators", "arn:aws:sns:"),
    ("account_concurrency", "many", "1 or more"),
    ("account_concurrency", "0", "1 or more"),
    ("account_concurrency", "-5", "1 or more"),
    ("account_concurrency", "1e3", "1 or more"),
    ("reserved_concurrency", "100", "function=instances"),
    ("reserved_concurrency", "produce=10,produce=20", "function=instances"),
    ("reserved_concurrency", "produce=half", "whole numbers"),
    ("reserved_concurrency", "produce=-1", "whole numbers"),
    ("waits_max", "-1", "0 or more"),
    ("api_requests_per_s", "0", "1 or more"),
    ("waits_max", "half", "0 or more"),
    ("inline_bytes_max", "-1", "0 to 5120 bytes, or auto"),
    ("inline_bytes_max", "1k", "0 to 5120 bytes, or auto"),
    ("inline_bytes_max", "Auto", "0 to 5120 bytes, or auto"),
    ("inline_bytes_max", "5121", "0 to 5120 bytes, or auto"),
    ("reserved_concurrency", "producer=10", FUNCTION_NAMES),
    ("metrics", "on", "topics or all"),
    ("jwt", "https://login.example", "ISSUER,AUDIENCE"),
    ("direct", "yes", "on or off"),
    ("kms_key", "alias/orders", "aws kms describe-key"),
    ("kms_key", "arn:aws:kms:eu-west-1:123456789012:key/1", "in us-east-1"),
    ("traces", "yes", "on or off"),
    ("python_version", "3.10", "3.11, 3.12, 3.13, 3.14"),
    ("emr_release", "8.0.0", "give off"),
    ("acl_default", "open", "allow or deny"),
    ("super_principals", "ops", "give ARN,ARN"),
    ("metrics", "all,topics", "topics=N"),
    ("metrics", "all,groups=3", "topics=N"),
    ("restored_tables", "topics=t", "log_stream="),
    ("restored_tables", f"{RESTORED},more=x", "log_stream="),
    ("restored_tables", "topics=,log=l,groups=g,log_stream=2026", "log_stream="),
    ("restored_tables", f"{RESTORED},log=m", "log_stream="),
    ("restored_tables", "t,l,g", "log_stream="),
)


@pytest.mark.parametrize(("setting", "value", "allowed"), WRONG)
def test_wrong_value_is_refused_with_what_is_allowed(setting: str, value: str, allowed: str) -> None:
    context: dict[str, str | None] = {"acl_default": "allow", setting: value}
    with pytest.raises(ValueError, match=re.escape(allowed)) as caught:
        _ = asks_account(context), settings_of_app(context, "us-east-1")
    message = str(caught.value)
    assert setting in message
    assert re.split("[=,]", value)[0] in message


def test_wrong_values_of_every_setting_are_tried() -> None:
    assert {setting for setting, *_ in WRONG} == set(CONTEXT_NAMES)
    assert set(OVERRIDES) < set(CONTEXT_NAMES)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("stag", "do you mean stage?"),
        ("regoin", "do you mean region?"),
        ("alarm_topic", "do you mean alarm_topic_arn?"),
        ("alarm-topic-arn", "do you mean alarm_topic_arn?"),
        ("alarmTopicArn", "do you mean alarm_topic_arn?"),
        ("reserved_concurency", "do you mean reserved_concurrency?"),
        ("Canary", "do you mean canary?"),
        ("team", "is no setting: give one of"),
    ],
)
def test_unknown_name_is_refused_with_the_name_that_is_like_it(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{name}=…")) as caught:
        settings_of_app({"stage": "dev", "region": "eu-central-1", name: "value"}, None)
    assert meant in str(caught.value)
    assert str(caught.value).endswith(f"give one of {', '.join(CONTEXT_NAMES)}")


def test_names_of_the_cdk_and_all_of_ours_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "stage.json"
    file.write_text('{"log_level": "WARN"}')
    names_of_cdk = {
        "@aws-cdk/core:checkSecretUsage": True,
        "aws:cdk:enable-path-metadata": True,
        "availability-zones:account=123456789012:region=eu-central-1": ["eu-central-1a"],
        "ami:account=123456789012:filters.name.0=al2023:region=eu-central-1": "ami-1",
        "acknowledged-issue-numbers": [19836],
        "cli-telemetry": False,
    }
    ours = {
        "stage": "orders",
        "base": "dev",
        "settings": str(file),
        "ask": "on",
        "region": "eu-central-1",
        "profile": "standard1",
        "alarm_topic_arn": "arn:aws:sns:eu-central-1:123456789012:operators",
        "account_concurrency": "1000",
        "reserved_concurrency": "off",
        "waits_max": "20",
        "api_requests_per_s": "2500",
        "inline_bytes_max": "4096",
        "restored_tables": RESTORED,
        "canary": "off",
        "metrics": "all,topics=3,dashboard",
        "jwt": "https://login.example,penstock",
        "direct": "on",
        "kms_key": "arn:aws:kms:eu-central-1:123456789012:key/mrk-1",
        "traces": "on",
        "python_version": "3.13",
        "emr_release": "off",
        "acl_default": "deny",
        "super_principals": "arn:aws:iam::123456789012:role/ops,arn:aws:iam::123456789012:user/ada",
    }
    assert set(ours) == set(CONTEXT_NAMES)
    settings = settings_of_app({**names_of_cdk, **ours}, None)
    assert (settings.name, settings.alarm_topic_arn) == ("penstock-orders", ours["alarm_topic_arn"])
    assert settings.log_level == "WARN"


@pytest.mark.parametrize("stage", [{}, {"stage": "prod"}, {"stage": "dev", "acl_default": "deny"}])
def test_app_in_which_nobody_could_make_rules_is_refused_with_the_ways_out(stage: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"super_principals=ARN,ARN.*stays so by -c acl_default=allow"):
        settings_of_app({**stage, "region": "us-east-1"}, None)
    settings_of_app({**stage, "acl_default": "allow"}, "us-east-1")
    ops = {"super_principals": "arn:aws:iam::123456789012:role/ops"}
    assert settings_of_app({**stage, **ops}, "us-east-1").super_principals == tuple(ops.values())


@pytest.mark.parametrize(
    ("name", "profile", "region", "told"),
    [
        ("prod", "express3", "eu-west-1", "eu-west-1 has 2: take express2"),
        ("dev", "express2", "eu-central-1", "eu-central-1 has 0: take standard1"),
        ("dev", "express3", None, "region None has 0: take standard1"),
    ],
)
def test_profile_that_the_region_cannot_have_is_refused(name: str, profile: str, region: str | None, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        settings_of_app({"stage": name, "profile": profile, "region": region}, None)


def test_reserve_of_zero_stops_a_function_for_a_restore() -> None:
    context = {"account_concurrency": "10", "reserved_concurrency": "produce=0"}
    assert overridden(STAGES["prod"], context.get).reserved_concurrency == {"produce": 0}


def test_more_reserved_instances_than_lambda_gives_are_refused() -> None:
    context = {"account_concurrency": "1000", "reserved_concurrency": "produce=400"}
    with pytest.raises(ValueError, match=re.escape("925 of the 1,000 instances")):
        overridden(STAGES["prod"], context.get)
    context = {"account_concurrency": "10", "reserved_concurrency": "fetch=5"}
    with pytest.raises(ValueError, match="leave 100"):
        overridden(STAGES["prod"], context.get)


@pytest.mark.parametrize("account", [None, "1000"])
def test_reserved_instances_are_changed_for_single_functions(account: str | None) -> None:
    context = {"account_concurrency": account, "reserved_concurrency": "produce=200, admin=1"}
    usual = overridden(STAGES["prod"], {"account_concurrency": account}.get).reserved_concurrency
    found = overridden(STAGES["prod"], context.get).reserved_concurrency
    assert found == {**usual, "produce": 200, "admin": 1}
    assert overridden(STAGES["prod"], {**context, "reserved_concurrency": "off"}.get).reserved_concurrency == {}


@pytest.mark.slow
def test_app_says_in_one_line_what_is_wrong() -> None:
    """The CDK passes context by an environment variable."""
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=CHECKOUT,
        env={
            "CDK_CONTEXT_JSON": '{"stage": "dev", "profil": "express2"}',
            "PATH": "/usr/bin:/bin:/usr/local/bin",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    told = [line for line in done.stderr.splitlines() if line.startswith("penstock: ")]
    allowed = ", ".join(CONTEXT_NAMES)
    assert told == [f"penstock: profil=… is no setting: do you mean profile? give one of {allowed}"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("region", ["me-central-1", "me-south-1"])
def test_region_without_the_release_of_emr_is_refused_with_the_way_out(region: str) -> None:
    context = {"stage": "dev", "region": region}
    with pytest.raises(ValueError, match=f"region {region} has no emr-spark-8.0.0.*-c emr_release=off"):
        settings_of_app(context, None)
    assert settings_of_app({**context, "emr_release": "off"}, None).emr_release is None
    assert settings_of_app({"stage": "dev", "region": "eu-central-1"}, None).emr_release == "emr-spark-8.0.0"
