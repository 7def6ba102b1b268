"""Files that were found in a parent folder: which are trusted, and what they may say."""

import os
from pathlib import Path

import pytest

from penstock.configuration import find_configuration
from penstock.errors import NotConfiguredError
from penstock.local_files import LOCAL_ENV_NAMES, find_local_file, is_loopback, read_local_file

TEXT = "PENSTOCK_URL=http://127.0.0.1:4566/api\nAWS_ACCESS_KEY_ID=a\nAWS_SECRET_ACCESS_KEY=b\nAWS_REGION=eu-west-3\n"
FAR = "https://abc123.execute-api.ap-south-1.amazonaws.com"


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private `local.env` in a parent of the working directory."""
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "cloud-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "cloud-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "cloud-token")
    path = tmp_path / ".penstock" / "local.env"
    path.parent.mkdir(mode=0o700)
    path.write_text(TEXT)
    path.chmod(0o600)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    return path


def test_private_file_of_a_parent_is_found_and_read(env: Path) -> None:
    assert find_local_file("local.env") == env
    assert find_local_file("jobs.env") is None
    assert find_configuration().url == "http://127.0.0.1:4566/api"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o660])
@pytest.mark.parametrize("is_folder", [False, True])
def test_file_that_others_may_write_is_refused(env: Path, mode: int, is_folder: bool) -> None:
    path = env.parent if is_folder else env
    path.chmod(mode | (0o100 if is_folder else 0))
    with pytest.raises(NotConfiguredError, match=rf"other users may write to {path}.*chmod go-w"):
        find_configuration()


@pytest.mark.parametrize("is_folder", [False, True])
def test_file_of_another_user_is_refused(env: Path, is_folder: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path = env.parent if is_folder else env
    if os.getuid() == 0:
        os.chown(path, 12_345, -1)
    else:
        path.chmod(0o500 if is_folder else 0o400)
        monkeypatch.setattr(os, "getuid", lambda: 12_345)
    with pytest.raises(NotConfiguredError, match="belongs to another user"):
        find_configuration()


def test_file_that_cannot_be_trusted_does_no_harm_when_the_url_is_given(
    env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.chmod(0o666)
    found = find_configuration(FAR)
    assert found.credentials.get_frozen_credentials().access_key == "cloud-key"
    monkeypatch.setenv("PENSTOCK_URL", FAR)
    assert find_configuration().url == FAR


@pytest.mark.parametrize(
    "url",
    [
        "http://evil.example",
        "https://evil.example",
        "http://10.0.0.1:4566",
        "http://127.0.0.1.evil.example",
        "http://127.0.0.1@evil.example",
        "http://localhost.evil.example",
        "//evil.example",
        "",
    ],
)
def test_found_file_may_name_this_machine_only(env: Path, url: str) -> None:
    for name in ("PENSTOCK_URL", "AWS_ENDPOINT_URL"):
        env.write_text(f"{TEXT}{name}={url}\n")
        with pytest.raises(NotConfiguredError, match="this machine only"):
            find_configuration()


def test_found_file_gives_known_names_only(env: Path) -> None:
    env.write_text(f"{TEXT}LD_PRELOAD=/tmp/evil.so\nAWS_SESSION_TOKEN=t\n# a=b\nno line\n")
    assert read_local_file(env, LOCAL_ENV_NAMES) == {
        "PENSTOCK_URL": "http://127.0.0.1:4566/api",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "eu-west-3",
    }


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "http://localhost", "http://[::1]:80", "https://127.1.2.3"])
def test_loopback_urls_are_known(url: str) -> None:
    assert is_loopback(url)


@pytest.mark.usefixtures("env")
@pytest.mark.parametrize("url", ["http://penstock.example", "http://10.0.0.1:4566", "http://[fe80::1]"])
def test_plain_http_to_another_machine_takes_a_setting(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotConfiguredError, match="PENSTOCK_ALLOW_HTTP=1"):
        find_configuration(url, "eu-west-1")
    monkeypatch.setenv("PENSTOCK_ALLOW_HTTP", "0")
    with pytest.raises(NotConfiguredError, match="PENSTOCK_ALLOW_HTTP=1"):
        find_configuration(url, "eu-west-1")
    monkeypatch.setenv("PENSTOCK_ALLOW_HTTP", "1")
    assert find_configuration(url, "eu-west-1").url == url


@pytest.mark.usefixtures("env")
def test_url_with_a_user_name_is_refused() -> None:
    with pytest.raises(NotConfiguredError, match="user name"):
        find_configuration("https://me:secret@penstock.example", "eu-west-1")
