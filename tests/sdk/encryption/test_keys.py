"""Keys that wrap data keys: KMS on moto, bytes of one's own, and what is said when one of them refuses."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ParamValidationError
from moto import mock_aws

from penstock.encryption import KmsKeys, LocalKeys
from penstock.encryption.keys import keys_of
from penstock.errors import AccessDeniedError, CorruptError, InvalidError, NotConfiguredError, UnavailableError

REGION = "eu-west-1"
CONTEXT = {"penstock:topic": "orders"}
ARN = f"arn:aws:kms:{REGION}:111122223333:key/mrk-1"


@pytest.fixture
def kms(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        yield boto3.client("kms", region_name=REGION)


def new_key(kms: Any) -> str:
    return str(kms.create_key()["KeyMetadata"]["Arn"])


def test_kms_unwraps_the_data_key_that_it_has_made(kms: Any) -> None:
    keys = KmsKeys(new_key(kms))
    made = keys.new_data_key(CONTEXT)
    assert len(made.plaintext) == 32
    assert keys.unwrap(made.key_id, made.wrapped, CONTEXT) == made.plaintext
    assert "plaintext" not in repr(made)


def test_old_key_unwraps_when_a_new_one_goes_before_it(kms: Any) -> None:
    old, new = new_key(kms), new_key(kms)
    made = KmsKeys(old).new_data_key(CONTEXT)
    rotated = KmsKeys(new, old)
    assert rotated.unwrap(made.key_id, made.wrapped, CONTEXT) == made.plaintext
    assert rotated.new_data_key(CONTEXT).key_id == new


def test_key_that_the_client_was_not_given_unwraps_nothing(kms: Any) -> None:
    theirs, ours = new_key(kms), new_key(kms)
    made = KmsKeys(theirs).new_data_key(CONTEXT)
    with pytest.raises(AccessDeniedError, match=r"encrypted by the key .*add the key if you trust it") as caught:
        KmsKeys(ours).unwrap(made.key_id, made.wrapped, CONTEXT)
    assert caught.value.facts["key_id"] == theirs


def test_other_context_does_not_unwrap(kms: Any) -> None:
    keys = KmsKeys(new_key(kms))
    made = keys.new_data_key(CONTEXT)
    with pytest.raises(CorruptError, match="has wrapped for this context"):
        keys.unwrap(made.key_id, made.wrapped, {"penstock:topic": "payments"})


class FakeKms:
    """KMS as one that raises, or notes what it was asked."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[dict[str, Any]] = []

    def decrypt(self, **asked: Any) -> dict[str, bytes]:
        self.asked.append(asked)
        if self.error is not None:
            raise self.error
        return {"Plaintext": bytes(32)}

    def generate_data_key(self, **asked: Any) -> dict[str, Any]:
        self.decrypt(**asked)
        return {"KeyId": ARN, "Plaintext": bytes(32), "CiphertextBlob": b"wrapped"}


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "said by KMS"}}, "Decrypt")


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (refusal("AccessDeniedException"), AccessDeniedError, rf"kms:Decrypt on {ARN} .*orders.*said by KMS"),
        (refusal("DisabledException"), AccessDeniedError, "enable the key"),
        (refusal("KMSInvalidStateException"), AccessDeniedError, "cancel its deletion"),
        (refusal("InvalidCiphertextException"), CorruptError, "is not one that"),
        (refusal("ValidationException"), CorruptError, "is not one that"),
        (ParamValidationError(report="Invalid length for parameter CiphertextBlob"), CorruptError, "is not one that"),
        (refusal("ThrottlingException"), UnavailableError, "ThrottlingException said by KMS"),
        (EndpointConnectionError(endpoint_url="https://kms"), UnavailableError, "could not be asked"),
    ],
)
def test_refusal_names_the_key_the_action_and_the_way_out(error: Exception, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        KmsKeys(ARN, client=FakeKms(error)).unwrap(ARN, b"wrapped", CONTEXT)


def test_refusal_of_a_new_data_key_names_its_action() -> None:
    with pytest.raises(AccessDeniedError, match="lack kms:GenerateDataKey"):
        KmsKeys(ARN, client=FakeKms(refusal("AccessDeniedException"))).new_data_key(CONTEXT)


def test_replica_of_a_multi_region_key_is_asked_where_the_reader_is() -> None:
    kms, replica = FakeKms(), ARN.replace(REGION, "us-east-1")
    KmsKeys(replica, client=kms).unwrap(ARN, b"wrapped", CONTEXT)
    assert kms.asked == [{"KeyId": replica, "EncryptionContext": CONTEXT, "CiphertextBlob": b"wrapped"}]


@pytest.mark.parametrize("arns", [(), ("alias/orders",), ("arn:aws:kms:eu-west-1:111122223333:alias/orders",)])
def test_kms_keys_are_given_by_their_arns(arns: tuple[str, ...]) -> None:
    with pytest.raises(InvalidError, match="ARN"):
        KmsKeys(*arns)


OLD, NEW = {"old": b"o" * 32}, {"new": b"n" * 32}


def test_local_keys_unwrap_what_they_have_wrapped_and_rotate() -> None:
    made = LocalKeys(OLD).new_data_key(CONTEXT)
    rotated = LocalKeys(NEW | OLD)
    assert rotated.unwrap("old", made.wrapped, CONTEXT) == made.plaintext
    assert rotated.new_data_key(CONTEXT).key_id == "new"
    with pytest.raises(AccessDeniedError, match="by the key 'old', and this client has new"):
        LocalKeys(NEW).unwrap("old", made.wrapped, CONTEXT)


@pytest.mark.parametrize(
    ("wrapped", "context"), [(b"short", CONTEXT), (bytes(60), CONTEXT), (None, {"penstock:topic": "payments"})]
)
def test_local_keys_refuse_changed_bytes_and_contexts(wrapped: bytes | None, context: dict[str, str]) -> None:
    made = LocalKeys(OLD).new_data_key(CONTEXT)
    with pytest.raises(CorruptError):
        LocalKeys(OLD).unwrap("old", wrapped or made.wrapped, context)


@pytest.mark.parametrize("keys", [{}, {"short": b"1"}, {"text": "1" * 32}, {b"1" * 32: "swapped"}])
def test_local_keys_have_names_and_32_bytes_and_errors_tell_none_of_them(keys: Any) -> None:
    with pytest.raises(InvalidError) as caught:
        LocalKeys(keys)
    assert "11" not in str(caught.value)


def test_keys_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"old": base64.b64encode(OLD["old"]).decode()}))
    made = LocalKeys(OLD).new_data_key(CONTEXT)
    assert keys_of((f"file:{path}",)).unwrap("old", made.wrapped, CONTEXT) == made.plaintext


@pytest.mark.parametrize("text", ["", "[]", '{"old": "?"}', '{"old": "b2xk"}', '{"old": 1}'])
def test_file_of_another_form_is_refused_with_an_example(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(NotConfiguredError, match=r"keys\.json.*give \{"):
        LocalKeys.from_file(path)


def test_missing_file_is_named() -> None:
    with pytest.raises(NotConfiguredError, match=r"nowhere\.json"):
        keys_of(("file:nowhere.json",))
