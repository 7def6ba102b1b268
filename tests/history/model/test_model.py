"""Histories of a correct model have no anomaly. If a test puts one fault in, the checker finds it."""

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.history.checker import Options, check
from tests.history.history_builder import HistoryBuilder
from tests.history.model.anomaly import Kind
from tests.history.model.model import ACTIONS, Model, Step

Line = dict[str, object]
number = st.integers(0, 59)
histories = st.lists(st.tuples(st.integers(0, ACTIONS - 1), number, number, number), max_size=60)
many = settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def play(steps: list[Step]) -> list[bytes]:
    model = Model()
    model.play(steps)
    return model.history.lines


@given(histories)
@settings(many, max_examples=600)
def test_check_finds_nothing_when_the_log_keeps_its_promises(steps: list[Step]) -> None:
    lines = play(steps)
    report = check(lines)
    assert report.is_clean, report.to_json()
    assert check(lines) == report


@given(histories)
@settings(many, max_examples=600)
def test_check_finds_explained_duplicates_only_when_producers_are_not_idempotent(steps: list[Step]) -> None:
    model = Model(is_idempotent=False)
    model.play(steps)
    strict = check(model.history.lines)
    assert strict.found.keys() <= {"duplicate"}
    report = check(model.history.lines, Options(allow_retry_duplicates=True))
    assert report.is_clean, report.to_json()
    assert report.counts.retry_duplicates == strict.found.get(Kind.DUPLICATE, 0)


class Faulty:
    """A right history with a prelude for faults: one producer sends ten records `f0`..., and two readers read them."""

    def __init__(self, steps: list[Step]) -> None:
        model = Model()
        model.play(steps)
        history = model.history
        self.topic = "faulty"
        where = (self.topic, 0)
        for index in range(0, 10, 2):
            history.sent("faulty-producer", (f"f{index}", index), (f"f{index + 1}", index + 1), where=where)
        for reader in ("faulty-a", "faulty-b"):
            history.assigned(reader, started=[(where, 0)])
            for start in (0, 5):
                self._poll(history, reader, start)
        self.lines: list[Line] = [json.loads(line) for line in history.lines]
        self.time_ns = history.now_ns

    def _poll(self, history: HistoryBuilder, reader: str, start: int) -> None:
        ops = [["poll", self.topic, 0, [[offset, f"f{offset}"] for offset in range(start, start + 5)]]]
        line = {"process": reader, "type": "ok", "f": "poll", "time_ns": history.now_ns, "ops": ops}
        history.write(json.dumps(line).encode())

    def add(self, process: str, outcome: str, function: str, *ops: list[object]) -> None:
        self.lines.append(
            {"process": process, "type": outcome, "f": function, "time_ns": self.time_ns, "ops": list(ops)}
        )

    def records(self, reader: str, poll: int) -> list[list[object]]:
        """The records of a reader's poll, to be changed."""
        polls = [line for line in self.lines if line["process"] == reader and line["f"] == "poll"]
        return polls[poll]["ops"][0][3]  # type: ignore[index,no-any-return]  # JSON

    def all_records(self) -> list[list[list[object]]]:
        return [self.records(reader, poll) for reader in ("faulty-a", "faulty-b") for poll in (0, 1)]

    def sends(self) -> list[list[object]]:
        """The acknowledged sends of the prelude, to be changed."""
        sent = [line for line in self.lines if line["process"] == "faulty-producer" and line["type"] == "ok"]
        return [op for line in sent for op in line["ops"]]  # type: ignore[attr-defined]  # JSON

    def exchange(self, one: int, other: int) -> None:
        """Let two records have been at each other's offset from the beginning."""
        swap = {one: other, other: one}
        for send in self.sends():
            send[4] = swap.get(send[4], send[4])  # type: ignore[call-overload]  # JSON
        for records in self.all_records():
            for record in records:
                record[1] = f"f{swap.get(record[0], record[0])}"  # type: ignore[call-overload]  # JSON

    def found(self) -> set[str]:
        lines = [json.dumps(line) for line in self.lines]
        return {str(kind) for kind in check(lines, Options()).found}


def inconsistent_offsets(faulty: Faulty, place: int) -> None:
    faulty.add("other", "info", "send", ["send", faulty.topic, 0, "x"])
    faulty.records("faulty-a", place % 2)[place % 5][1] = "x"


def duplicate(faulty: Faulty, place: int) -> None:
    faulty.add("faulty-b", "ok", "poll", ["poll", faulty.topic, 0, [[10, f"f{place % 10}"]]])


def aborted_read(faulty: Faulty, place: int) -> None:
    sent = [line for line in faulty.lines if line["process"] == "faulty-producer" and line["type"] == "ok"]
    sent[place % 5]["type"] = "fail"


def unwritten_read(faulty: Faulty, place: int) -> None:
    sent = [line for line in faulty.lines if line["process"] == "faulty-producer"]
    for line in sent[place % 5 * 2 :][:2]:
        faulty.lines.remove(line)


def precommitted_read(faulty: Faulty, place: int) -> None:
    faulty.add("w", "ok", "txn", ["send", faulty.topic, 0, "x", 10], ["poll", faulty.topic, 0, [[10, "x"]]])


def lost_write(faulty: Faulty, place: int) -> None:
    place %= 9
    for poll in (0, 1):
        for reader in ("faulty-a", "faulty-b"):
            records = faulty.records(reader, poll)
            records[:] = [record for record in records if record[0] != place]


def unseen(faulty: Faulty, place: int) -> None:
    faulty.add("other", "ok", "send", ["send", faulty.topic, 0, "x", 10 + place])


def offset_gap(faulty: Faulty, place: int) -> None:
    place %= 10
    for send in faulty.sends():
        send[4] += send[4] >= place  # type: ignore[operator]  # JSON
    for records in faulty.all_records():
        for record in records:
            record[0] += record[0] >= place  # type: ignore[operator]  # JSON


def poll_skip(faulty: Faulty, place: int) -> None:
    del faulty.records("faulty-a", place % 2)[0 : 1 + place % 4]


def int_poll_skip(faulty: Faulty, place: int) -> None:
    del faulty.records("faulty-a", place % 2)[1 + place % 3]


def nonmonotonic_poll(faulty: Faulty, place: int) -> None:
    start = place % 5
    faulty.records("faulty-a", 1)[:0] = [[offset, f"f{offset}"] for offset in range(start, 5)]


def int_nonmonotonic_poll(faulty: Faulty, place: int) -> None:
    records = faulty.records("faulty-a", place % 2)
    records.insert(place % 5, records[place % 5])


def wrong_committed(faulty: Faulty, place: int) -> None:
    faulty.add("w", "ok", "commit", ["commit", faulty.topic, 0, 1 + place])
    faulty.lines[-1]["group"] = "faulty"
    faulty.time_ns += 10
    faulty.add("w", "ok", "committed", ["committed", faulty.topic, 0, place])
    faulty.lines[-1]["group"] = "faulty"


def nonmonotonic_send(faulty: Faulty, place: int) -> None:
    place = place % 4 * 2
    faulty.exchange(place + 1, place + 2)


def int_nonmonotonic_send(faulty: Faulty, place: int) -> None:
    place = place % 5 * 2
    faulty.exchange(place, place + 1)


# The kinds that must be found, and kinds that may be found too: a reader passes over a lost record.
FAULTS: dict[str, tuple[Callable[[Faulty, int], None], set[str]]] = {
    "inconsistent-offsets": (inconsistent_offsets, set()),
    "duplicate": (duplicate, set()),
    "aborted-read": (aborted_read, set()),
    "unwritten-read": (unwritten_read, set()),
    "precommitted-read": (precommitted_read, set()),
    "lost-write": (lost_write, {"poll-skip", "int-poll-skip"}),
    "unseen": (unseen, set()),
    "offset-gap": (offset_gap, set()),
    "poll-skip": (poll_skip, set()),
    "int-poll-skip": (int_poll_skip, set()),
    "wrong-committed": (wrong_committed, set()),
    "nonmonotonic-poll": (nonmonotonic_poll, set()),
    "int-nonmonotonic-poll": (int_nonmonotonic_poll, set()),
    "nonmonotonic-send": (nonmonotonic_send, set()),
    "int-nonmonotonic-send": (int_nonmonotonic_send, set()),
}


@pytest.mark.parametrize("kind", FAULTS)
@given(steps=histories, place=st.integers(0, 19))
@settings(many, max_examples=40)
def test_check_finds_the_fault_and_nothing_else(kind: str, steps: list[Step], place: int) -> None:
    faulty = Faulty(steps)
    assert not faulty.found()
    put, company = FAULTS[kind]
    put(faulty, place)
    found = faulty.found()
    assert kind in found
    assert found - {kind} <= company


@given(steps=histories, chosen=st.integers(0, 1_000))
@many
def test_check_finds_a_value_that_a_poll_of_any_history_garbled(steps: list[Step], chosen: int) -> None:
    lines = [json.loads(line) for line in play(steps)]
    records = [record for line in lines for op in line.get("ops", ()) if op[0] == "poll" for record in op[3]]
    assume(records)
    records[chosen % len(records)][1] = "garbled"
    assert "unwritten-read" in check([json.dumps(line) for line in lines]).found


@given(steps=histories, chosen=st.integers(0, 1_000))
@many
def test_check_finds_a_record_that_vanishes_from_every_poll_of_any_history(steps: list[Step], chosen: int) -> None:
    lines = [json.loads(line) for line in play(steps)]
    last = [op for line in lines if line["process"] == "last" for op in line.get("ops", ()) if op[0] == "poll"]
    sent = {op[3] for line in lines if line["type"] == "ok" for op in line.get("ops", ()) if op[0] == "send"}
    read = [(op[2], record[1]) for op in last for record in op[3] if record[1] in sent]
    assume(read)
    partition, value = read[chosen % len(read)]
    for line in lines:
        for op in line.get("ops", ()):
            if op[0] == "poll" and op[2] == partition:
                op[3] = [record for record in op[3] if record[1] != value]
    found = check([json.dumps(line) for line in lines]).found
    assert found.keys() & {"lost-write", "unseen", "torn-transaction"}
