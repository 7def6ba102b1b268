"""Values by the emulator's KMS, whose IAM refuses callers without the right: who writes, and who reads."""

from typing import Any

import pytest
from botocore.session import Session

from penstock import Consumer, Producer, TopicPartition
from penstock.encryption import Encryption, KmsKeys
from penstock.errors import AccessDeniedError
from tests.end_to_end.local_stack import Stack

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    return str(stack.root_client("kms").create_key()["KeyMetadata"]["Arn"])


def encryption_of(stack: Stack, user: str, key: str, *actions: str) -> Encryption:
    """As a user may use it whose one policy allows these actions on the key."""
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": key}
    key_id, secret = stack.create_user(user, {"Version": "2012-10-17", "Statement": [statement]})
    client: Any = Session().create_client(
        "kms",
        region_name=stack.region,
        endpoint_url=stack.endpoint_url,
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
    )
    return Encryption(KmsKeys(key, client=client))


def test_reader_needs_the_right_to_decrypt_and_sender_that_to_encrypt(stack: Stack, topic: str, key: str) -> None:
    sender = encryption_of(stack, "value-sender", key, "kms:GenerateDataKey")
    reader = encryption_of(stack, "value-reader", key, "kms:Decrypt")
    place = TopicPartition(topic, 0)
    with Producer(transport=stack.transport(), encryption=sender) as producer:
        producer.send(topic, b"secret", key=b"ada", partition=0).result()
    with (
        Producer(transport=stack.transport(), encryption=reader) as producer,
        pytest.raises(AccessDeniedError, match=f"lack kms:GenerateDataKey on {key}"),
    ):
        producer.send(topic, b"secret", partition=0)
    with Consumer(transport=stack.transport(), encryption=reader) as consumer:
        consumer.assign([place])
        record = next(consumer)
    assert (record.value, record.key, record.headers) == (b"secret", b"ada", ())
    stranger = encryption_of(stack, "value-stranger", key, "kms:DescribeKey")
    with Consumer(transport=stack.transport(), encryption=stranger) as consumer:
        consumer.assign([place])
        with pytest.raises(
            AccessDeniedError, match=rf"offset 0: your credentials lack kms:Decrypt on {key}.*'{topic}'"
        ):
            next(consumer)
