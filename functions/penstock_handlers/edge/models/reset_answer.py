"""The answer to the reset of a group or a share group, from which the OpenAPI document is made."""

from collections.abc import Iterable
from typing import NotRequired

from typing_extensions import TypedDict

from penstock_core.errors import PenstockError
from penstock_core.ids import Partition
from penstock_core.outcomes import Outcome
from penstock_handlers.edge.json_api import error_json
from penstock_handlers.edge.models.answer_models import Error
from penstock_service.topics.reset_offset import ResetOffset


class ResetResult(TypedDict):
    """A partition's offset before and after the reset, or the error that refused it."""

    partition: int
    old_offset: NotRequired[int | None]
    new_offset: NotRequired[int]
    error: NotRequired[Error]


class ResetResults(TypedDict):
    """One result per partition."""

    partitions: list[ResetResult]


def reset_results(results: Iterable[tuple[Partition, Outcome[ResetOffset]]]) -> ResetResults:
    """The answer, in the order of `results`."""
    return {"partitions": [_result(*each) for each in results]}


def _result(partition: Partition, result: Outcome[ResetOffset]) -> ResetResult:
    if isinstance(result, PenstockError):
        return {"partition": partition, "error": error_json(result)}
    return {"partition": partition, "old_offset": result.old_offset, "new_offset": result.new_offset}
