import asyncio

import urllib3
from confluent_kafka.admin import AdminClient

from penstock.endpoint.listening import listen
from tests.kafka.running_gateway import RunningGateway


def test_figures_count_requests_and_connections(gateway: RunningGateway) -> None:
    AdminClient({"bootstrap.servers": gateway.address}).list_topics(timeout=10)
    text = gateway.gateway.metrics.text()
    assert 'penstock_kafka_requests_total{api="metadata"} ' in text
    assert "# TYPE penstock_kafka_connections gauge" in text
    assert "penstock_kafka_malformed_requests_total 0" in text


def test_metrics_are_refused_when_a_request_names_another_host(gateway: RunningGateway) -> None:
    listening = listen(0)
    start = gateway.gateway.metrics.start(listening)
    asyncio.run_coroutine_threadsafe(start, gateway.loop).result()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"
    assert urllib3.request("GET", url).status == 200
    assert urllib3.request("GET", url, headers={"Host": "evil.example"}).status == 403
