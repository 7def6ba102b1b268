"""The answers to a reset or a deletion of offsets, from which the OpenAPI document is made."""

from collections.abc import Iterable
from typing import NotRequired

from typing_extensions import TypedDict

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, Partition
from penstock_core.outcomes import Outcome
from penstock_handlers.edge.json_api import error_json
from penstock_handlers.edge.models.answer_models import Error
from penstock_service.topics.list_offsets import ResetOffset


class ResetResult(TypedDict):
    """A partition's offset before and after the reset, or the error that refused it."""

    partition: int
    old_offset: NotRequired[int | None]
    new_offset: NotRequired[int]
    error: NotRequired[Error]


class ResetResults(TypedDict):
    """One result per partition."""

    partitions: list[ResetResult]


class DeletedOffset(TypedDict):
    """The offset that a partition had before its deletion, or the error that refused it."""

    partition: int
    old_offset: NotRequired[int | None]
    error: NotRequired[Error]


class DeletedOffsets(TypedDict):
    """One result per partition."""

    partitions: list[DeletedOffset]


def deleted_offsets(results: Iterable[tuple[Partition, Outcome[Offset | None]]]) -> DeletedOffsets:
    """The answer, in the order of `results`."""
    return {
        "partitions": [
            {"partition": partition, "error": error_json(result)}
            if isinstance(result, PenstockError)
            else {"partition": partition, "old_offset": result}
            for partition, result in results
        ]
    }


def reset_results(results: Iterable[tuple[Partition, Outcome[ResetOffset]]]) -> ResetResults:
    """The answer, in the order of `results`."""
    return {"partitions": [_result(*each) for each in results]}


def _result(partition: Partition, result: Outcome[ResetOffset]) -> ResetResult:
    if isinstance(result, PenstockError):
        return {"partition": partition, "error": error_json(result)}
    return {"partition": partition, "old_offset": result.old_offset, "new_offset": result.new_offset}
