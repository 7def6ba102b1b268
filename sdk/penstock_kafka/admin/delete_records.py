"""DeleteRecords: removes the records of a partition below an offset, for every reader."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.api.calls import list_offsets, topic_path
from penstock.errors import error_from_json
from penstock.http.http_message import json_request
from penstock.http.steps import Calls
from penstock_core.errors import PenstockError
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.errors import KafkaError, kafka_error

_TO_THE_END = -1
_UNKNOWN = -1


class DeleteRecords:
    """Truncates partitions, one call of the service per topic."""

    def __init__(self, context: Context) -> None:
        self._service = context.service

    async def answer(self, call: Call) -> Answer:
        """The first offsets that are left, by partition."""
        topics = [
            {"name": each.name, "partitions": await self._topic(each.name, each.partitions)}
            for each in call.request.topics
        ]
        return {"topics": topics}

    async def _topic(self, name: str, wanted: Sequence[Request]) -> list[Answer]:
        refused: dict[int, KafkaError] = {
            each.partition_index: KafkaError.offset_out_of_range for each in wanted if each.offset < _TO_THE_END
        }
        befores = {
            each.partition_index: each.offset
            for each in wanted
            if each.partition_index not in refused and each.partition_index >= 0
        }
        try:
            if _TO_THE_END in befores.values():
                found_ends = await self._service.call(list_offsets(name, "latest"))
                ends = {number: at.offset for number, at in found_ends.items() if at is not None}
                befores = {
                    number: ends.get(number, before) if before == _TO_THE_END else before
                    for number, before in befores.items()
                }
            befores = {number: before for number, before in befores.items() if before >= 0}
            found = await self._service.call(_truncate(name, befores)) if befores else {}
        except PenstockError as error:
            found, refused = {}, {each.partition_index: kafka_error(error) for each in wanted}
        return [_result(each.partition_index, found, refused) for each in wanted]


def _truncate(name: str, befores: Mapping[int, int]) -> Calls[dict[int, int | PenstockError]]:
    body = {str(number): before for number, before in befores.items()}
    answer = yield json_request("POST", f"{topic_path(name)}/truncate", body=body, is_repeatable=True)
    found: list[Mapping[str, Any]] = answer["partitions"]
    return {
        each["partition"]: error_from_json(each["error"]) if "error" in each else each["log_start_offset"]
        for each in found
    }


def _result(number: int, found: Mapping[int, int | PenstockError], refused: Mapping[int, KafkaError]) -> Answer:
    outcome = found.get(number)
    if isinstance(outcome, int):
        return {"partition_index": number, "low_watermark": outcome, "error_code": KafkaError.none}
    code = refused.get(number, KafkaError.unknown_topic_or_partition)
    if outcome is not None:
        code = kafka_error(outcome)
    return {"partition_index": number, "low_watermark": _UNKNOWN, "error_code": code}
