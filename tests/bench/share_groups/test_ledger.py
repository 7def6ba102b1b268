"""The ledger of a worker: its lines, and what the calls of a share group put into it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.share_groups.facts import (
    SENT,
    UNCLEAR,
    Acknowledged,
    Called,
    Fact,
    Handled,
    Ledger,
    Took,
    parse_line,
    read_ledgers,
    to_line,
)
from bench.share_groups.ledger_transport import LedgerTransport, results_of
from penstock.http.http_message import Response
from penstock_core.records import frame

PATH = "/v1/share-groups/g/"
LOCK = {"topic": "t", "partition": 0, "lock_id": "n.0~token~mark"}
FACTS: list[Fact] = [
    Took(worker="w", lock="n.0", ranges=((0, 3), (5, 6)), deliveries=2, sent_ns=1, answered_ns=2, ends_ns=3),
    Handled(worker="w", lock="n.0", offset=5, deliveries=2),
    Acknowledged(worker="w", lock="n.0", ranges=((0, 3),), verb="accept", result="ok", sent_ns=1, answered_ns=2),
    Called(worker="w", call="acquire", records=4, acknowledgements=0, reads=2, writes=1, gets=1),
]


class Answers:
    """A transport that gives the answers in turn."""

    def __init__(self, *answers: Response) -> None:
        self._answers = list(answers)

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        return self._answers.pop(0)

    def close(self) -> None:
        pass


def entry(verb: str, offsets: list[list[int]] | None) -> dict[str, Any]:
    return {**LOCK, "type": verb, "offsets": offsets}


def answer(result: str, offsets: list[list[int]] | None) -> dict[str, Any]:
    return {**LOCK, "result": result, "offsets": offsets}


def acquired() -> Response:
    partition = {**LOCK, "delivery_count": 1, "ranges": [[0, 3]], "until_ms_left": 5_000, "length": 0}
    header = {"acknowledged": [], "partitions": [partition]}
    return Response(
        200, {"Penstock-Storage-Calls": "dynamodb.GetItem=2,dynamodb.UpdateItem=1"}, frame.encode(header, [])
    )


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_line_is_read_as_it_was_written(fact: Fact) -> None:
    assert parse_line(to_line(fact)) == fact


def test_ledger_is_read_without_the_line_that_a_kill_has_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "w.ledger.jsonl"
    with Ledger(path, "w") as ledger:
        ledger.write(FACTS)
    with path.open("a") as file:
        file.write(to_line(FACTS[0])[:20])
    assert list(read_ledgers([path])) == FACTS


def test_calls_write_what_they_locked_and_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "w.ledger.jsonl"
    done = Response(200, {}, json.dumps({"acknowledged": [answer("ok", None)]}).encode())
    with Ledger(path, "w") as ledger:
        transport = LedgerTransport(Answers(acquired(), done), ledger)
        transport.call("POST", f"{PATH}acquire", {}, {}, b"{}")
        transport.call(
            "POST", f"{PATH}acknowledge", {}, {}, json.dumps({"acknowledge": [entry("release", None)]}).encode()
        )
    took, called, sent, acknowledged, _ = read_ledgers([path])
    assert isinstance(took, Took)
    assert (took.lock, took.ranges, took.ends_ns - took.sent_ns) == ("n.0", ((0, 3),), 5_000_000_000)
    assert called == Called(worker="w", call="acquire", records=3, acknowledgements=0, reads=2, writes=1, gets=0)
    assert isinstance(sent, Acknowledged)
    assert isinstance(acknowledged, Acknowledged)
    assert [each.result for each in (sent, acknowledged)] == [SENT, "ok"]
    assert acknowledged.ranges == ((0, 3),)  # the answer names none: it is for the whole lock


def test_release_stands_in_the_ledger_when_its_call_has_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "w.ledger.jsonl"
    entries = [entry("release", [[0, 1]]), entry("accept", [[1, 2]])]
    body = json.dumps({"acknowledge": entries}).encode()
    with Ledger(path, "w") as ledger:
        transport = LedgerTransport(Answers(), ledger)
        with pytest.raises(IndexError):
            transport.call("POST", f"{PATH}acknowledge", {}, {}, body)
    [fact] = read_ledgers([path])
    assert isinstance(fact, Acknowledged)
    assert (fact.verb, fact.result, fact.ranges) == ("release", SENT, ((0, 1),))


def test_results_belong_to_the_entries_of_their_lock() -> None:
    one = entry("accept", [[0, 4]])
    parts = [answer("ok", [[0, 2]]), answer("LOCK_LOST", [[2, 4]])]
    assert [(each, result) for _, each, result in results_of([one], parts)] == [
        (parts[0], "ok"),
        (parts[1], "LOCK_LOST"),
    ]
    two = [one, entry("renew", None)]
    assert [each["type"] for each, _, _ in results_of(two, parts)] == ["accept", "renew"]
    assert [result for _, _, result in results_of(two, [*parts, answer("ok", None)])] == [UNCLEAR, UNCLEAR]
