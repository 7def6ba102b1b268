from confluent_kafka.admin import AdminClient

from tests.kafka.running_gateway import RunningGateway


def test_figures_count_requests_and_connections(gateway: RunningGateway) -> None:
    AdminClient({"bootstrap.servers": gateway.address}).list_topics(timeout=10)
    text = gateway.gateway.metrics.text()
    assert 'penstock_kafka_requests_total{api="metadata"} ' in text
    assert "# TYPE penstock_kafka_connections gauge" in text
    assert "penstock_kafka_malformed_requests_total 0" in text
