"""Clients of the emulator."""

import pytest

from localstack.clients import client, endpoint_url


def test_client_calls_its_port_when_the_environment_names_another_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint_url(4566))
    assert client("s3", 4599).meta.endpoint_url == endpoint_url(4599)
