from pathlib import Path

import pytest

from penstock.configuration import find_configuration
from penstock.errors import NotConfiguredError
from penstock.transports.functions_place import access_by, find_functions, functions_of_local_env, hinted_functions

ARN = "arn:aws:lambda:eu-west-1:111122223333:function:penstock"
API = "https://a1b2c3.execute-api.eu-west-1.amazonaws.com"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "exported")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "exported")
    return tmp_path


def _write(folder: Path, **values: str) -> Path:
    (folder / ".penstock").mkdir(mode=0o700)
    path = folder / ".penstock" / "local.env"
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    path.chmod(0o600)
    return path


def test_functions_are_those_of_the_variable_with_the_endpoints_of_their_region() -> None:
    found = find_functions(environ={"PENSTOCK_FUNCTIONS": ARN, "AWS_REGION": "us-east-1"})
    assert (found.place.arn, found.signer.region) == (ARN, "eu-west-1")
    assert found.lambda_url == found.signer.url == "https://lambda.eu-west-1.amazonaws.com"
    assert found.sts_url == "https://sts.eu-west-1.amazonaws.com"
    assert found.signer.credentials.get_frozen_credentials().access_key == "exported"


def test_endpoints_are_those_of_the_variables_of_both_services() -> None:
    environ = {
        "PENSTOCK_FUNCTIONS": ARN,
        "AWS_ENDPOINT_URL_LAMBDA": "https://a/",
        "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:9",
    }
    found = find_functions(environ=environ)
    assert (found.lambda_url, found.sts_url) == ("https://a", "http://127.0.0.1:9")


def test_endpoint_of_all_services_is_not_that_of_a_stage_on_aws() -> None:
    """It often names a store, which would get records and proofs in clear text."""
    values = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "PENSTOCK_FUNCTIONS": ARN}
    aws = ("https://lambda.eu-west-1.amazonaws.com", "https://sts.eu-west-1.amazonaws.com")
    invoked = find_functions(environ=values)
    learned = access_by(find_configuration(API), values, ARN)
    assert [(each.lambda_url, each.sts_url) for each in (invoked, learned)] == [aws, aws]


@pytest.mark.parametrize("service", ["LAMBDA", "STS"])
def test_endpoint_that_anybody_on_the_way_could_read_is_refused(service: str) -> None:
    values = {f"AWS_ENDPOINT_URL_{service}": "http://elsewhere", "PENSTOCK_FUNCTIONS": ARN}
    with pytest.raises(NotConfiguredError, match="use https://"):
        find_functions(environ=values)
    with pytest.raises(ValueError, match="use https://"):
        access_by(find_configuration(API), values, ARN)
    assert find_functions(environ={**values, "PENSTOCK_ALLOW_HTTP": "1"}).place.arn == ARN


def test_functions_and_keys_are_those_of_the_local_stack_when_the_environment_has_none(folder: Path) -> None:
    _write(
        folder,
        PENSTOCK_FUNCTIONS=ARN,
        AWS_ENDPOINT_URL="http://127.0.0.1:9",
        AWS_ACCESS_KEY_ID="k",
        AWS_SECRET_ACCESS_KEY="s",
    )
    found = find_functions(environ={"AWS_ENDPOINT_URL": "https://elsewhere"})
    assert (found.lambda_url, found.sts_url) == ("http://127.0.0.1:9", "http://127.0.0.1:9")
    assert found.signer.credentials.get_frozen_credentials().access_key == "k"


def test_file_of_a_service_without_functions_is_named(folder: Path) -> None:
    path = _write(folder, PENSTOCK_URL="http://127.0.0.1:9")
    with pytest.raises(NotConfiguredError, match=f"{path} names no functions"):
        find_functions(environ={})


@pytest.mark.parametrize("text", ["penstock", f"{ARN}-produce:live", "https://evil.example"])
def test_variable_that_names_no_stage_is_refused_with_its_form(text: str) -> None:
    with pytest.raises(NotConfiguredError, match=r"PENSTOCK_FUNCTIONS: .* is no ARN of a stage"):
        find_functions(environ={"PENSTOCK_FUNCTIONS": text})


def test_ways_out_are_named_when_there_are_no_functions() -> None:
    with pytest.raises(NotConfiguredError, match="set PENSTOCK_FUNCTIONS to the output FunctionsArn"):
        find_functions(environ={})


def test_variable_next_to_a_url_is_a_hint_and_no_functions() -> None:
    configuration = find_configuration(environ={"PENSTOCK_URL": API, "AWS_ACCESS_KEY_ID": "k"})
    assert functions_of_local_env(configuration) is None
    assert hinted_functions(configuration, {"PENSTOCK_FUNCTIONS": ARN}) == ARN
    assert hinted_functions(configuration, {}) is None


def test_functions_that_a_service_tells_have_the_endpoints_of_its_region() -> None:
    found = access_by(find_configuration(API), {}, ARN)
    assert (found.place.arn, found.signer.region) == (ARN, "eu-west-1")
    assert found.signer.url == found.lambda_url == "https://lambda.eu-west-1.amazonaws.com"


@pytest.mark.parametrize("url", [API, "https://queue.example"])
def test_functions_of_another_region_than_the_api_are_not_its_own(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    elsewhere = ARN.replace("eu-west-1", "us-east-1")
    with pytest.raises(ValueError, match="of another region than the API, which is in eu-west-1"):
        access_by(find_configuration(url), {}, elsewhere)


@pytest.mark.parametrize("names_functions", [True, False])
def test_local_stack_has_the_functions_of_its_file_and_no_others(folder: Path, names_functions: bool) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "eu-west-1"}
    place = {"PENSTOCK_FUNCTIONS": ARN, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"} if names_functions else {}
    _write(folder, PENSTOCK_URL="http://127.0.0.1:8", **keys, **place)
    configuration = find_configuration(environ={})
    assert hinted_functions(configuration, {"PENSTOCK_FUNCTIONS": f"{ARN}-of-aws"}) is None
    found = functions_of_local_env(configuration)
    told = None if found is None else (found.place.arn, found.lambda_url)
    assert told == ((ARN, "http://127.0.0.1:9") if names_functions else None)


def test_wrong_functions_next_to_a_url_are_refused_with_the_variables_name() -> None:
    configuration = find_configuration(environ={"PENSTOCK_URL": API, "AWS_ACCESS_KEY_ID": "k"})
    with pytest.raises(NotConfiguredError, match=r"PENSTOCK_FUNCTIONS: .* is no ARN of a stage"):
        hinted_functions(configuration, {"PENSTOCK_FUNCTIONS": "penstock"})


def test_wrong_functions_of_the_local_stack_are_refused_with_the_files_name(folder: Path) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "eu-west-1"}
    path = _write(folder, PENSTOCK_URL="http://127.0.0.1:8", PENSTOCK_FUNCTIONS="penstock", **keys)
    with pytest.raises(NotConfiguredError, match=f"{path}: PENSTOCK_FUNCTIONS: .* is no ARN of a stage"):
        functions_of_local_env(find_configuration(environ={}))
