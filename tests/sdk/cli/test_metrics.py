"""`penstock metrics` prints the figures once. tests/sdk/metrics/test_endpoint.py has the endpoint."""

import pytest

from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run, run_json


def test_figures_are_printed_in_prometheus_text_format(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=3)
    result = run(service.transport, "metrics")
    assert result.exit_code == 0
    assert "# TYPE penstock_topic_partitions gauge\npenstock_topic_partitions" in result.stdout
    assert 'penstock_topic_partitions{topic="orders"} 3' in run_json(service.transport, "metrics")["metrics"]


@pytest.mark.parametrize("place", ["9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", ":9464"])
def test_place_that_is_no_address_is_refused(service: MemoryPenstock, place: str) -> None:
    result = run(service.transport, "metrics", "--serve", place)
    assert result.exit_code == 2
    assert "give an address and a port" in result.output


def test_place_that_cannot_be_taken_is_told(service: MemoryPenstock) -> None:
    result = run(service.transport, "metrics", "--serve", "192.0.2.1:9464")
    assert result.exit_code == 2
    assert "cannot be taken" in result.output
