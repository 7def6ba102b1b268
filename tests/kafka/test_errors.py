import pytest

from penstock_core.errors import Category, ErrorCode, PenstockError
from penstock_kafka.errors import KAFKA_ERRORS, KafkaError, RequestRefused, error_message, kafka_error


@pytest.mark.parametrize("code", list(ErrorCode))
def test_each_code_of_penstock_has_a_code_of_kafka(code: ErrorCode) -> None:
    assert kafka_error(PenstockError(code, "message")) is not KafkaError.none
    assert code in KAFKA_ERRORS


@pytest.mark.parametrize("code", [each for each in ErrorCode if each.category is Category.UNAVAILABLE])
def test_client_tries_again_when_the_service_is_unavailable(code: ErrorCode) -> None:
    assert KAFKA_ERRORS[code].retriable


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
