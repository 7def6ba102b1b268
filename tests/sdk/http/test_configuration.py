from pathlib import Path

import pytest

from penstock.configuration import find_configuration, has_functions_alone, is_api_of_aws
from penstock.errors import NotConfiguredError

LOCAL = """# written by penstock local up
PENSTOCK_URL=http://127.0.0.1:4566/api
AWS_ACCESS_KEY_ID=local-key
export AWS_SECRET_ACCESS_KEY='local-secret'
AWS_REGION=eu-west-3
"""


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "PENSTOCK_URL",
        "PENSTOCK_TOKEN",
        "PENSTOCK_TOKEN_FILE",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_PROFILE",
        "AWS_DEFAULT_PROFILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def local_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".penstock").mkdir(mode=0o700)
    (tmp_path / ".penstock" / "local.env").write_text(LOCAL)
    (tmp_path / ".penstock" / "local.env").chmod(0o600)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)


@pytest.fixture
def aws_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "cloud-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "cloud-secret")


def test_error_names_the_way_out_when_no_configuration_is_found() -> None:
    with pytest.raises(NotConfiguredError, match=r"PENSTOCK_URL.*penstock local up"):
        find_configuration()


@pytest.mark.usefixtures("local_stack")
def test_local_stack_of_a_parent_folder_is_found_with_its_keys_and_region() -> None:
    found = find_configuration()
    assert (found.url, found.region) == ("http://127.0.0.1:4566/api", "eu-west-3")
    assert found.credentials.get_frozen_credentials().access_key == "local-key"
    assert found.credentials.get_frozen_credentials().secret_key == "local-secret"


@pytest.mark.usefixtures("local_stack", "aws_keys")
def test_keys_for_aws_are_not_used_for_the_local_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    found = find_configuration()
    assert (found.url, found.region) == ("http://127.0.0.1:4566/api", "eu-west-3")
    assert found.credentials.get_frozen_credentials().access_key == "local-key"


@pytest.mark.usefixtures("local_stack", "aws_keys")
def test_environment_goes_before_the_file_when_it_gives_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "http://127.0.0.1:4566/api")
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    found = find_configuration()
    assert found.region == "us-east-2"
    assert found.credentials.get_frozen_credentials().access_key == "cloud-key"


@pytest.mark.usefixtures("local_stack", "aws_keys")
def test_url_of_the_argument_goes_before_all_and_tells_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "https://elsewhere.example")
    found = find_configuration("https://abc123.execute-api.ap-south-1.amazonaws.com/")
    assert found.url == "https://abc123.execute-api.ap-south-1.amazonaws.com"
    assert found.region == "ap-south-1"


@pytest.mark.usefixtures("local_stack")
def test_local_keys_are_not_used_for_another_service() -> None:
    with pytest.raises(NotConfiguredError, match="credentials"):
        find_configuration("https://abc123.execute-api.ap-south-1.amazonaws.com")


@pytest.mark.usefixtures("aws_keys")
def test_missing_region_error_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "https://penstock.example")
    with pytest.raises(NotConfiguredError, match="AWS_REGION"):
        find_configuration()
    assert find_configuration(region="eu-west-1").region == "eu-west-1"


@pytest.mark.usefixtures("aws_keys")
def test_url_without_scheme_is_refused() -> None:
    with pytest.raises(NotConfiguredError, match="https://"):
        find_configuration("penstock.example")


URL = "https://abc.execute-api.eu-west-1.amazonaws.com"


@pytest.mark.usefixtures("aws_keys")
def test_token_goes_before_keys_that_are_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert find_configuration(URL).tokens is None
    monkeypatch.setenv("PENSTOCK_TOKEN", "of-the-variable")
    found = find_configuration(URL).tokens
    assert found is not None
    assert found.current() == "of-the-variable"
    monkeypatch.delenv("PENSTOCK_TOKEN")
    (tmp_path / "token").write_text("of-the-file\n")
    monkeypatch.setenv("PENSTOCK_TOKEN_FILE", str(tmp_path / "token"))
    found = find_configuration(URL).tokens
    assert found is not None
    assert found.current() == "of-the-file"
    given = find_configuration(URL, token=lambda: "given").tokens
    assert given is not None
    assert given.current() == "given"


def test_two_places_of_a_token_are_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", "x")
    monkeypatch.setenv("PENSTOCK_TOKEN_FILE", "y")
    with pytest.raises(NotConfiguredError, match="set one of them"):
        find_configuration(URL)


@pytest.mark.usefixtures("local_stack")
def test_exported_token_is_not_sent_to_a_service_that_a_file_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", "of-aws")
    assert find_configuration().tokens is None


def test_client_with_a_token_signs_no_events() -> None:
    configuration = find_configuration(URL, token=lambda: "given")
    with pytest.raises(NotConfiguredError, match="wake-ups"):
        configuration.credentials.get_frozen_credentials()


FUNCTIONS = {"PENSTOCK_FUNCTIONS": "arn:aws:lambda:us-east-1:111122223333:function:penstock"}


def test_functions_alone_say_where_the_service_is() -> None:
    assert has_functions_alone(None, FUNCTIONS)
    assert not has_functions_alone(None, {})


@pytest.mark.parametrize("name", ["PENSTOCK_URL", "PENSTOCK_TOKEN", "PENSTOCK_TOKEN_FILE"])
def test_functions_are_not_alone_next_to_a_url_or_a_token(name: str) -> None:
    assert not has_functions_alone(None, {**FUNCTIONS, name: "x"})
    assert not has_functions_alone(URL, FUNCTIONS)


@pytest.mark.usefixtures("local_stack")
def test_local_stack_goes_before_functions_that_are_exported() -> None:
    assert not has_functions_alone(None, FUNCTIONS)


@pytest.mark.parametrize(
    ("url", "is_one"),
    [
        (URL, True),
        (f"{URL}/", True),
        (f"{URL}:443/stage", True),
        ("https://abc-vpce-0a1b.execute-api.eu-west-1.amazonaws.com", True),
        ("https://abc.execute-api.cn-north-1.amazonaws.com.cn", True),
        (f"{URL}.evil.example", False),
        ("https://evil.example?abc.execute-api.eu-west-1.amazonaws.com", False),
        ("https://evil.example#.execute-api.eu-west-1.amazonaws.com", False),
        ("https://evil.example/abc.execute-api.eu-west-1.amazonaws.com", False),
        ("https://abc.execute-api.eu-west-1.amazonaws.computer", False),
        ("https://queue.example", False),
        ("https://[::1", False),
    ],
)
def test_api_of_aws_is_known_by_its_whole_host(url: str, is_one: bool) -> None:
    assert is_api_of_aws(url) is is_one
