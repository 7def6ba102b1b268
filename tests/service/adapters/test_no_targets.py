"""Targets of a process that delivers nothing, and those in memory."""

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.push.batch import Answered, Failed, Failure
from penstock_core.push.targets.target import FunctionTarget
from penstock_service.adapters.absent import NoTargets
from penstock_service.adapters.memory.messages import MemoryTargets
from tests.support.push_records import StoredRecord, orders
from tests.support.refusals import refused

TARGET = FunctionTarget(arn="arn:aws:lambda:eu-west-1:123456789012:function:pack")
BATCH = orders(StoredRecord(1))


def test_process_without_targets_says_what_it_lacks() -> None:
    targets = NoTargets()
    error = refused(ErrorCode.INTERNAL, lambda: targets.check(TARGET))
    assert "PENSTOCK_TARGETS" in error.message
    assert targets.deliver(TARGET, BATCH, 50_000) == Failed(failure=Failure.AWAY, error=error.message)


def test_targets_in_memory_handle_all_until_they_are_told_otherwise() -> None:
    targets = MemoryTargets()
    targets.check(TARGET)
    assert targets.deliver(TARGET, BATCH, 50_000) == Answered()
    away = Failed(failure=Failure.AWAY, error="throttled")
    targets.answer = lambda _target, _batch: away
    assert targets.deliver(TARGET, BATCH, 50_000) == away
    assert targets.deliveries == [(TARGET, BATCH)] * 2
    targets.refusal = PenstockError(ErrorCode.ACCESS_DENIED, "no")
    assert refused(ErrorCode.ACCESS_DENIED, lambda: targets.check(TARGET)) is targets.refusal
