"""The parser takes lines of the format, and refuses all others with the line and the value."""

import json

import pytest

from tests.history.format import (
    Acknowledge,
    AckResult,
    Acks,
    Acquired,
    Assign,
    Cancel,
    Commit,
    Committed,
    Copies,
    DeadLetter,
    DeadLetters,
    Disturb,
    Drained,
    Function,
    Handling,
    MalformedHistoryError,
    MicroOp,
    Nonce,
    Outcome,
    Poll,
    Push,
    Reset,
    Schedule,
    Seek,
    Send,
    Share,
    Subscribe,
    Truncate,
    Verb,
)
from tests.history.history_builder import ORDERS, OTHER
from tests.history.micro_ops import encode_micro_op
from tests.history.model.operations import read_operations
from tests.history.parsing import parse_line

LETTER = DeadLetter(
    offset=1, value="a", key=None, origin=ORDERS, origin_offset=3, group="g", deliveries=2, reason="rejected"
)
GOOD = {"process": "p", "type": "ok", "f": "send", "time_ns": 5, "ops": [["send", "orders", 0, "a", 1]]}


def line_of(**changes: object) -> str:
    fields = {**GOOD, **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not ...})


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (Function.SEND, Send(ORDERS, "a")),
        (Function.SEND, Send(ORDERS, -7, 3)),
        (Function.TXN, Send(OTHER, "ä\n", 0)),
        (Function.TXN, Send(OTHER, "a", None, ("in", 0, 7, ""))),
        (Function.TXN, Send(OTHER, "a", 1, ("in", 0, 7, "debit"))),
        (Function.POLL, Poll(ORDERS, ((0, "a"),), 1)),
        (Function.POLL, Poll(ORDERS, ((0, "a"),), None, "a")),
        (Function.POLL, Poll(ORDERS, (), 1, "a")),
        (Function.COMMIT, Commit(ORDERS, 5, 7)),
        (Function.RESET, Reset(ORDERS, 5)),
        (Function.RESET, Reset(ORDERS, None)),
        (Function.POLL, Poll(ORDERS, ())),
        (Function.POLL, Poll(ORDERS, ((3, "a"), (4, 5)))),
        (Function.TXN, Commit(ORDERS, 4)),
        (Function.COMMIT, Commit(ORDERS, 4)),
        (Function.COMMITTED, Committed(ORDERS, 4)),
        (Function.COMMITTED, Committed(ORDERS, None)),
        (Function.ASSIGN, Assign((ORDERS,), ((OTHER, None),))),
        (Function.ASSIGN, Assign((), ((OTHER, 0),))),
        (Function.SUBSCRIBE, Subscribe(("orders", "events"))),
        (Function.SEEK, Seek(ORDERS, None)),
        (Function.SEEK, Seek(ORDERS, 9)),
        (Function.TRUNCATE, Truncate(ORDERS, 9)),
        (Function.SEND, Send(ORDERS, "a", 1, None, "k")),
        (Function.TXN, Send(ORDERS, "a", 1, ("in", 0, 7, "x"), "k")),
        (Function.SCHEDULE, Schedule(ORDERS, "a", 99, "0-1-2")),
        (Function.CANCEL, Cancel("orders", "0-1-2")),
        (Function.SHARE, Share(topics=("orders",))),
        (
            Function.SHARE,
            Share(topics=("a", "b"), deliveries_max=3, is_by_key=True, dead_letter_topic="d", ending="7"),
        ),
        (Function.ACQUIRE, Acquired(ORDERS, "n.0", 2, 500, ((3, "a"), (5, "b")))),
        (Function.ACQUIRE, Acknowledge(ORDERS, "n.0", Verb.ACCEPT)),
        (Function.ACQUIRE, Nonce("n")),
        (Function.TXN, Acknowledge(ORDERS, "n.0", Verb.ACCEPT, ((3, 4),))),
        (Function.ACKNOWLEDGE, Acknowledge(ORDERS, "n.0", Verb.GIVE_BACK, ((3, 4), (6, 9)), AckResult.LOST)),
        (Function.ACKNOWLEDGE, Acknowledge(ORDERS, "n.0", Verb.REJECT, None, AckResult.DONE, "because")),
        (Function.ACKNOWLEDGE, Acknowledge(ORDERS, "n.0", Verb.RENEW, None, None, 500)),
        (Function.DEAD_LETTERS, DeadLetters(OTHER, (LETTER,))),
        (Function.DRAINED, Drained("orders")),
        (Function.PUSH, Push(topics=("orders",))),
        (Function.PUSH, Push(topics=("a", "b"), is_ordered=False, dead_letter_topic="d", ending="7")),
        (
            Function.PUSH,
            Push(topics=("orders",), is_latest=True, copies_to="mirror", lock_ms=65_000, is_complete=True),
        ),
        (Function.HANDLE, Handling(ORDERS, ((3, "a"), (5, "b")))),
        (Function.HANDLE, Handling(ORDERS, (), (3, 5))),
        (Function.COPIES, Copies(ORDERS, ((3, "a"),))),
        (Function.DISTURB, Disturb("deliver killed")),
        (Function.DISTURB, Disturb("lanes altered", 65_000)),
    ],
)
def test_parse_line_reads_what_the_recorder_writes(function: Function, op: MicroOp) -> None:
    event = parse_line(3, line_of(f=function, ops=[encode_micro_op(op)]))
    assert (event.line, event.process, event.outcome, event.function, event.ops) == (
        3,
        "p",
        Outcome.OK,
        function,
        (op,),
    )


def test_parse_line_takes_optional_fields() -> None:
    event = parse_line(1, line_of(id=3, start_ns=5, wall_ms=1, acks="all", attempts=2, group="g").encode())
    assert (event.id, event.start_ns, event.acks, event.attempts, event.group) == (3, 5, Acks.ALL, 2, "g")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        (b"\xff", "not JSON"),
        ("[]", "one object"),
        ("{} {}", "one object"),
        (line_of(what=1), "unknown field 'what'"),
        (line_of(type="done"), "type 'done' is none of invoke, ok"),
        (line_of(type=...), "type None"),
        (line_of(f="read"), "f 'read' is none of send"),
        (line_of(f=[]), "f"),
        (line_of(process=""), "process ''"),
        (line_of(process=7), "process 7"),
        (line_of(time_ns=...), "time_ns None"),
        (line_of(time_ns=1.5), "time_ns 1.5"),
        (line_of(time_ns=-1), "time_ns -1"),
        (line_of(time_ns=True), "time_ns True"),
        (line_of(id="x"), "id 'x'"),
        (line_of(start_ns=6), "start_ns 6"),
        (line_of(start_ns=4, type="invoke"), "start_ns 4"),
        (line_of(acks="most"), "acks 'most'"),
        (line_of(acks=[]), "acks"),
        (line_of(attempts="two"), "attempts 'two'"),
        (line_of(group=1), "group 1"),
        (line_of(ops={}), "ops {} is not a list"),
        (line_of(ops=[[]]), "is none of send"),
        (line_of(ops=[[[]]]), "is none of send"),
        (line_of(ops=["send"]), "micro-operation 'send' is not a list"),
        (line_of(ops=[["poll", "orders", 0, []]]), "is none of send"),
        (line_of(f="txn", ops=[["seek", "orders", 0, 1]]), "is none of send, poll, commit"),
        (line_of(ops=[["send", "orders", 0]]), "has 3 elements"),
        (line_of(ops=[["send", "orders", 0, "a", 1, None, "k", 2]]), "has 8 elements"),
        (line_of(ops=[["send", "orders", 0, "a", 1, None, 2]]), "key 2"),
        (line_of(ops=[["send", 7, 0, "a"]]), "topic 7"),
        (line_of(ops=[["send", "orders", -1, "a"]]), "partition -1"),
        (line_of(ops=[["send", "orders", 0, None]]), "value None"),
        (line_of(ops=[["send", "orders", 0, True]]), "value True"),
        (line_of(ops=[["send", "orders", 0, "a", -1]]), "offset -1"),
        (line_of(f="poll", ops=[["poll", "orders", 0, [1]]]), "a record is [offset, value], not 1"),
        (line_of(f="poll", ops=[["poll", "orders", 0, [[1]]]]), "a record is [offset, value], not [1]"),
        (line_of(f="poll", ops=[["poll", "orders", 0, [["1", "a"]]]]), "offset '1'"),
        (line_of(f="poll", ops=[["poll", "orders", 0, [[-1, "a"]]]]), "offset -1"),
        (line_of(f="poll", ops=[["poll", "orders", 0, [[1, 1.5]]]]), "value 1.5"),
        (line_of(f="poll", ops=[["poll", "orders", 0]]), "has 3 elements"),
        (line_of(f="commit", ops=[["commit", "orders", 0, None]]), "offset None"),
        (line_of(f="assign", ops=[["assign", [["orders"]]]]), "has 2 elements"),
        (line_of(f="assign", ops=[["assign", "orders"]]), "assignment 'orders'"),
        (line_of(f="subscribe", ops=[["subscribe", [1]]]), "topic 1"),
        (line_of(f="seek", ops=[["seek", "orders", 0, "end"]]), "position 'end'"),
        (line_of(f="truncate", ops=[["truncate", "orders", 0, None]]), "before_offset None"),
        (line_of(f="schedule", ops=[["schedule", "orders", 0, "a", 9]]), "has 5 elements"),
        (line_of(f="schedule", ops=[["schedule", "orders", 0, "a", 9, 7]]), "id 7"),
        (line_of(f="cancel", ops=[["cancel", "orders"]]), "has 2 elements"),
        (line_of(f="share", ops=[["share", {}]]), "topics None"),
        (line_of(f="share", ops=[["share", ["orders"]]]), "are not an object"),
        (line_of(f="share", ops=[["share", {"topics": [], "what": 1}]]), "are not an object"),
        (line_of(f="share", ops=[["share", {"topics": [], "ordering": "any"}]]), "ordering 'any'"),
        (line_of(f="acquire", ops=[["nonce", 7]]), "nonce 7"),
        (line_of(f="acquire", ops=[["acquired", "orders", 0, "n", 1, 5]]), "has 6 elements"),
        (line_of(f="acquire", ops=[["acquired", "orders", 0, "n", 1, 5, [["1", "a"]]]]), "offset '1'"),
        (line_of(f="acquire", ops=[["acknowledge", "orders", 0, "n", "eat", None]]), "verb 'eat'"),
        (line_of(f="acknowledge", ops=[["acknowledge", "orders", 0, "n", "accept", [[1]]]]), "[start, end]"),
        (line_of(f="acknowledge", ops=[["acknowledge", "orders", 0, "n", "accept", [[2, 2]]]]), "is empty"),
        (line_of(f="acknowledge", ops=[["acknowledge", "orders", 0, "n", "accept", None, "x"]]), "result 'x'"),
        (line_of(f="dead-letters", ops=[["dead-letters", "d", 0, [[1, "a", None]]]]), "a dead letter is"),
        (line_of(f="dead-letters", ops=[["dead-letters", "d", 0, [[1, "a", None, ["o", 0, 1]]]]]), "has 4 elements"),
        (line_of(f="drained", ops=[["drained", 7]]), "topic 7"),
        (line_of(f="push", ops=[["push", {"topics": [], "start": "first"}]]), "start 'first'"),
        (line_of(f="push", ops=[["push", {"topics": [], "is_complete": 1}]]), "is_complete 1"),
        (line_of(f="push", ops=[["push", {"topics": [], "deliveries_max": 1}]]), "are not an object"),
        (line_of(f="handle", ops=[["handle", "orders", 0, [], ["x"]]]), "refused offset 'x'"),
        (line_of(f="handle", ops=[["handle", "orders", 0]]), "has 3 elements"),
        (line_of(f="copies", ops=[["copies", "orders", 0, [1]]]), "a record is"),
        (line_of(f="disturb", ops=[["disturb", ""]]), "why ''"),
        (line_of(f="stop", ops=[["stop"]]), "is none of"),
    ],
)
def test_parse_line_refuses_what_is_not_of_the_format(line: str | bytes, message: str) -> None:
    with pytest.raises(MalformedHistoryError) as refused:
        parse_line(17, line)
    assert str(refused.value).startswith("line 17: ")
    assert message in str(refused.value)
    assert refused.value.line == 17


def test_read_operations_pairs_by_id_and_by_process() -> None:
    lines = [
        line_of(type="invoke", id=1, time_ns=1, ops=[["send", "orders", 0, "a"]], acks="all"),
        "",
        line_of(type="invoke", id=2, time_ns=2, ops=[["send", "orders", 0, "b"]]),
        line_of(type="invoke", time_ns=3, ops=[["send", "orders", 0, "c"]]),
        line_of(type="ok", id=2, time_ns=4, ops=[["send", "orders", 0, "b", 0]]),
        line_of(type="info", time_ns=5, ops=...),
        line_of(type="ok", process="q", time_ns=8, start_ns=6),
    ]
    operations = list(read_operations(lines))
    assert [(o.invoke_line, o.line, o.start_ns, o.end_ns) for o in operations] == [
        (3, 5, 2, 4),
        (4, 6, 3, 5),
        (7, 7, 6, 8),
        (1, 1, 1, 8),
    ]
    assert [o.ops[0].value for o in operations if isinstance(o.ops[0], Send)] == ["b", "c", "a", "a"]
    assert [o.attempts for o in operations] == [1, None, 1, None]
    assert (operations[3].is_open, operations[3].acks, operations[3].outcome) == (True, Acks.ALL, Outcome.MAYBE)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (line_of(time_ns=1), "time_ns 1 lies before the line above (5)"),
        (line_of(type="invoke", id=1), "send of 'p' with id 1 is open since line 1"),
        (line_of(f="poll", id=1, ops=[]), "was invoked as send"),
        (line_of(id=1, start_ns=5), "start_ns, but send of 'p' with id 1 was invoked in line 1"),
        (line_of(id=1, ops=[["send", "orders", 0, "b", 1]]), "names other sends than its invoke"),
        (line_of(id=1, ops=[["send", "orders", 1, "a", 1]]), "names other sends than its invoke"),
    ],
)
def test_read_operations_refuses_a_line_that_does_not_fit_the_lines_above(second: str, message: str) -> None:
    first = line_of(type="invoke", id=1, ops=[["send", "orders", 0, "a"]])
    with pytest.raises(MalformedHistoryError, match=r"^line 2: ") as refused:
        list(read_operations([first, second]))
    assert message in str(refused.value)
