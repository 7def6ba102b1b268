import asyncio
from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import walk_packages

import pytest
import urllib3
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

import penstock_kafka
from penstock.endpoint.listening import listen
from penstock_core.errors import Category, ErrorCode, PenstockError
from penstock_kafka.command import kafka
from penstock_kafka.errors import KAFKA_ERRORS, KafkaError, RequestRefused, error_message, kafka_error
from tests.kafka.running_gateway import RunningGateway


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "0.0.0.0:9092"], "clients on other hosts would have this host's rights"),
        (["--listen", "9092"], "give HOST:PORT"),
        (["--listen", "localhost:99999"], "give HOST:PORT"),
        (["--advertise", "host"], "give HOST:PORT"),
        (["--metrics", "host"], "give HOST:PORT"),
        (["--tls-cert", "x"], "give --tls-cert and --tls-key together"),
        (["--listen", "0.0.0.0:9092", "--tls-cert", "x", "--tls-key", "x"], "and --users"),
    ],
)
def test_kafka_refuses_an_address_that_it_cannot_serve(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(kafka, arguments)
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.parametrize("code", list(ErrorCode))
def test_each_code_of_penstock_has_a_code_of_kafka(code: ErrorCode) -> None:
    assert kafka_error(PenstockError(code, "message")) is not KafkaError.none
    assert code in KAFKA_ERRORS


@pytest.mark.parametrize("code", [each for each in ErrorCode if each.category is Category.UNAVAILABLE])
def test_client_tries_again_when_the_service_is_unavailable(code: ErrorCode) -> None:
    assert KAFKA_ERRORS[code].retriable


# Final for Penstock, and Kafka's clients look again at what these tell of, before they send anything once more.
LOOKED_AT_AGAIN = {
    (ErrorCode.UNKNOWN_TOPIC, KafkaError.unknown_topic_or_partition),  # at the metadata
    (ErrorCode.UNKNOWN_PARTITION, KafkaError.unknown_topic_or_partition),
    (ErrorCode.UNKNOWN_TOPIC_ID, KafkaError.unknown_topic_or_partition),
    (ErrorCode.UNKNOWN_TOPIC_ID, KafkaError.unknown_topic_id),
    (ErrorCode.CONCURRENT_UPDATE, KafkaError.not_controller),  # at the state that has changed
    (ErrorCode.CONCURRENT_UPDATE, KafkaError.coordinator_load_in_progress),
    (ErrorCode.CONCURRENT_UPDATE, KafkaError.concurrent_transactions),
    (ErrorCode.STALE_HEARTBEAT, KafkaError.coordinator_load_in_progress),
    (ErrorCode.CORRUPT_SEGMENT, KafkaError.kafka_storage_error),  # at another zone's copy
    (ErrorCode.INVALID_REQUEST, KafkaError.kafka_storage_error),  # a share group lost a topic: a heartbeat adds it
}


def _tables() -> Iterator[tuple[str, ErrorCode, KafkaError]]:
    """Each entry of each table of codes in the gateway, with the name of its module."""
    for module in walk_packages(penstock_kafka.__path__, "penstock_kafka."):
        for table in vars(import_module(module.name)).values():
            if isinstance(table, Mapping):
                yield from (
                    (module.name, code, kafka_code)
                    for code, kafka_code in table.items()
                    if isinstance(code, ErrorCode) and isinstance(kafka_code, KafkaError)
                )


def test_code_that_is_final_for_penstock_is_final_for_kafkas_clients() -> None:
    entries = [*_tables()]
    assert {code for _, code, _ in entries} == set(ErrorCode)
    repeated = [each for each in entries if not each[1].is_retriable and each[2].retriable]
    assert [each for each in repeated if each[1:] not in LOOKED_AT_AGAIN] == []


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        ("topic:orders", KafkaError.topic_authorization_failed),
        ("group:billing", KafkaError.group_authorization_failed),
        ("share_group:workers", KafkaError.group_authorization_failed),
        ("transactional_id:ledger", KafkaError.transactional_id_authorization_failed),
        ("service", KafkaError.cluster_authorization_failed),
    ],
)
def test_refused_right_names_its_resource_in_kafkas_way(resource: str, code: KafkaError) -> None:
    error = PenstockError(ErrorCode.NOT_AUTHORIZED, "no", resource=resource)
    assert kafka_error(error) is code


def test_fitter_code_goes_before_the_table() -> None:
    error = PenstockError(ErrorCode.INVALID_NAME, "no")
    assert kafka_error(error, {ErrorCode.INVALID_NAME: KafkaError.invalid_group_id}) is KafkaError.invalid_group_id
    assert kafka_error(RequestRefused(KafkaError.invalid_config, "no")) is KafkaError.invalid_config


def test_message_begins_with_penstocks_code_and_is_bounded() -> None:
    said = error_message(PenstockError(ErrorCode.INVALID_NAME, "x" * 5_000))
    assert said.startswith("INVALID_NAME: ")
    assert len(said) == 1_000


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
