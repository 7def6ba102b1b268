"""Produce requests, and commits of transactions, with delayed records among them.

Each partition of a produce request is an operation of its own. A transaction is one operation. A record's value may
name the record that it was made from (`values.made_from`).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import error_from_json
from penstock.http.http_message import Response
from penstock_core.records import frame
from penstock_core.records.codec import Record, decode
from tests.chaos.clients.values import made_from, name_of
from tests.chaos.exchanges.exchange import Outcome, Planned, history_ns
from tests.chaos.exchanges.shares import acknowledges
from tests.history.format import Acks, Function, MicroOp, Schedule, Send


class ProduceExchange:
    """POST /v1/produce."""

    def __init__(self, body: bytes) -> None:
        header, entries = _entries(body)
        acks = Acks(str(header["acks"]))
        self.planned = [
            Planned(function=Function.SCHEDULE if _is_delayed(entry) else Function.SEND, ops=ops, acks=acks)
            for entry, ops in entries
        ]

    def outcomes(self, response: Response) -> Sequence[Outcome]:
        results = json.loads(response.body)["results"]
        return [
            error_from_json(result["error"])
            if "error" in result
            else _placed(planned.ops, result["base_offset"])
            if planned.function is Function.SEND
            else planned.ops
            for planned, result in zip(self.planned, results, strict=True)
        ]


class TransactionExchange:
    """POST /v1/transactions, a commit. The chaos clients' transactions fit one request, so they have no stages."""

    def __init__(self, body: bytes) -> None:
        header, entries = _entries(body)
        assert "stage" not in header, "a transaction of the chaos clients must fit one request"
        self._entries = entries
        ops: list[MicroOp] = [op for _, each in entries for op in each]
        accepted = header.get("acknowledgements", [])
        groups = {each["group"] for each in accepted}
        self._accepts = acknowledges(accepted, "accept")
        [group] = groups or {None}
        self.planned = [Planned(function=Function.TXN, ops=[*ops, *self._accepts], group=group)]

    def outcomes(self, response: Response) -> Sequence[Outcome]:
        bases = {
            (each["topic"], each["partition"]): each["base_offset"] for each in json.loads(response.body)["results"]
        }
        done: list[MicroOp] = [*self._accepts]
        for entry, ops in self._entries:
            place = entry["topic"], entry["partition"]
            if _is_delayed(entry) or place not in bases:  # a repeat of a commit may not tell the places
                done += ops
            else:
                done += _placed(ops, bases[place])
                bases[place] += len(ops)
        return [done]


def _entries(body: bytes) -> tuple[dict[str, Any], list[tuple[dict[str, Any], list[MicroOp]]]]:
    """The header of a request, and each of its batches' entries with the records."""
    decoded, data = frame.decode(body)
    header: dict[str, Any] = dict(decoded)
    found = []
    start = 0
    for entry in header["batches"]:
        end = start + entry["length"]
        found.append((entry, [_op(entry, record) for record in decode(data[start:end])]))
        start = end
    return header, found


def _op(entry: Mapping[str, Any], record: Record) -> MicroOp:
    where, name = (entry["topic"], entry["partition"]), name_of(record.value)
    if _is_delayed(entry):
        due_ms, timer_id = entry["deliver_at_ms"], entry["timer_id"]
        return Schedule(where, name, history_ns(due_ms), f"{where[1]}-{due_ms}-{timer_id}")
    key = None if record.key is None else record.key.decode()
    return Send(where, name, None, made_from(name), key)


def _is_delayed(entry: Mapping[str, Any]) -> bool:
    return "deliver_at_ms" in entry


def _placed(ops: Sequence[MicroOp], base_offset: int) -> list[MicroOp]:
    return [
        Send(op.where, op.value, base_offset + index, op.source, op.key)
        for index, op in enumerate(ops)
        if isinstance(op, Send)
    ]
