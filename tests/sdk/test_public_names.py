"""The public names of the SDK: a name that comes, goes or moves changes this list, and so is never an accident."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import penstock

CLIENTS = """
    Admin AsyncAdmin AsyncConsumer AsyncDeadLetters AsyncProducer AsyncShareConsumer AsyncTransaction AsyncTransformer
    Consumer DeadLetters Producer ShareConsumer Transaction Transformer
"""
PORTS = """
    AsyncTransport ConsumerRebalanceListener Delivery DeliveryCallback HttpTransport RebalanceCallback Response
    Transport TransportName async_token_transport token_transport
"""
GROUP_VALUES = "Group GroupDescription GroupMember GroupPartition ResetOffset"
SHARE_VALUES = (
    "DeadLetterCounts PartitionLetters Redrive Reject Release ShareGroup ShareGroupDescription ShareGroupPartition "
    "ShareHolder ShareRecord"
)
QUOTA_VALUES = "Quota Schedule"
PUSH_VALUES = "Subscription SubscriptionDescription SubscriptionLanes SubscriptionPartition"
HEAT_VALUES = "HotPartition TopicHeat"
ACL_VALUES = "AccessChange AccessDecision AccessRule"
VALUES = """
    CommittedOffset ConsumerRecord OffsetAndTimestamp PartitionOffsets RecordMetadata ScheduledRecords Topic
    TopicDescription TopicPartition UndecodableBatch Zone
"""
ERRORS = """
    AccessDeniedError BufferFullError ClosedError ConflictError ConnectionFailedError CorruptError DeliveryTimeoutError
    FencedError ForkedError GroupFullError InstanceFencedError InvalidError LeaseHeldError LeaseLostError LockLostError
    NoOffsetError NotConfiguredError NotFoundError OffsetOutOfRangeError PenstockError RecordTooLargeError
    ThrottledError TopicExistsError TopicReplacedError TransactionAbortedError UnavailableError UnknownPartitionError
    UnknownTopicError
"""
ADMIN_VALUES = f"{QUOTA_VALUES} {ACL_VALUES} {HEAT_VALUES}"
PUBLIC = {
    "penstock": f"{CLIENTS} {PORTS} {GROUP_VALUES} {SHARE_VALUES} {PUSH_VALUES} {ADMIN_VALUES} {VALUES} {ERRORS}",
    "penstock.encryption": "HEADER DataKey Encryption Keys KmsKeys LocalKeys",
    "penstock.schemas": "AvroSerde ConfluentRegistry Deserializer GlueRegistry JsonSerde ProtobufSerde Registry Schema "
    "SchemaReference Serializer",
    "penstock.errors": f"{ERRORS} Category ClientError ErrorCode",
    "penstock.model": f"{VALUES} GroupOffset Headers HeadersToSend",
    "penstock.pytest_plugin": "penstock_service",
    "penstock.testing": "MemoryPenstock MemoryTransport ThreadedTransport",
    "penstock.tracing": "context_of processing",
    "penstock.webhook": "WebhookDelivery WebhookRecord WebhookRequest failure_answer sign verify",
    "penstock.cli": "main",
}


@pytest.mark.parametrize("name", PUBLIC)
def test_module_exports_exactly_its_public_names(name: str) -> None:
    module = importlib.import_module(name)
    assert set(module.__all__) == set(PUBLIC[name].split())
    assert all(hasattr(module, exported) for exported in module.__all__)


def test_names_of_the_package_come_from_where_a_type_checker_reads_them() -> None:
    source = ast.parse(inspect.getsource(penstock))
    read = {
        alias.name: node.module
        for block in source.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert read == penstock._MODULE_OF
    assert set(read) == set(penstock.__all__)


def test_public_modules_are_attributes_of_the_package() -> None:
    code = "import penstock; penstock.errors.ClosedError, penstock.model.Topic"
    path = [entry for entry in sys.path if entry]
    subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {code}"], check=True)


def test_a_name_that_is_not_there_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'penstock' has no attribute 'Broker'"):
        getattr(penstock, "Broker")  # noqa: B009 - a type checker would refuse the attribute


def test_docstring_of_the_package_names_each_public_module() -> None:
    said = penstock.__doc__ or ""
    assert all(f"`{name}`" in said for name in PUBLIC if name != "penstock")
    assert "All other modules are private" in said


def test_only_public_modules_declare_exports() -> None:
    packages = pkgutil.walk_packages(penstock.__path__, "penstock.")
    names = [each.name for each in packages if each.name not in PUBLIC and "supervise" not in each.name]
    assert [name for name in names if hasattr(importlib.import_module(name), "__all__")] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_and_their_public_methods_have_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    for exported in (getattr(module, each) for each in module.__all__):
        if not inspect.isclass(exported) or not exported.__module__.startswith("penstock."):
            continue
        assert inspect.getdoc(exported), exported
        methods = {each: value for each, value in vars(exported).items() if not each.startswith("_")}
        for method, value in methods.items():
            if inspect.isfunction(value) or isinstance(value, property):
                assert inspect.getdoc(value), f"{exported.__name__}.{method}"
