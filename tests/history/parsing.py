"""The parser of a history's lines. `format` says what they mean."""

import json
from collections.abc import Callable

from tests.history.fields import (
    FieldError,
    length_of,
    list_of,
    number_of,
    optional_number_of,
    records_of,
    text_of,
    value_of,
    where_of,
)
from tests.history.format import (
    Acks,
    Assign,
    Commit,
    Committed,
    Event,
    Function,
    MalformedHistoryError,
    MicroOp,
    Outcome,
    Poll,
    Reset,
    Seek,
    Send,
    Source,
    Subscribe,
    Truncate,
)
from tests.history.queue_codec import QUEUE_DECODERS


def parse_line(line: int, text: str | bytes) -> Event:
    """Parse one line; raises MalformedHistoryError that names the line and the value."""
    try:
        text = (text if isinstance(text, str) else text.decode()).strip()
        fields, end = _DECODER.raw_decode(text)
    except ValueError as error:
        raise MalformedHistoryError(line, f"not JSON: {error}") from None
    if type(fields) is not dict or end != len(text):
        raise MalformedHistoryError(line, f"an event is one object, not {text!r}")
    try:
        return _parse_event(line, fields)
    except FieldError as error:
        raise MalformedHistoryError(line, str(error)) from None


def _parse_event(line: int, fields: dict[str, object]) -> Event:
    if not fields.keys() <= _FIELDS:
        raise FieldError(f"unknown field {min(fields.keys() - _FIELDS)!r}")
    get = fields.get
    outcome = _OUTCOMES.get(text_of(get("type"), "type"))
    if outcome is None:
        raise FieldError(f"type {get('type')!r} is none of {', '.join(Outcome)}")
    function = _FUNCTIONS.get(text_of(get("f"), "f"))
    if function is None:
        raise FieldError(f"f {get('f')!r} is none of {', '.join(Function)}")
    acks = get("acks")
    if acks is not None and text_of(acks, "acks") not in _ACKS:
        raise FieldError(f"acks {acks!r} is none of {', '.join(Acks)}")
    time_ns = number_of(get("time_ns"), "time_ns")
    start_ns = optional_number_of(get("start_ns"), "start_ns")
    if start_ns is not None and (outcome is Outcome.INVOKE or start_ns > time_ns):
        raise FieldError(f"start_ns {start_ns} stands on an invoke or lies after time_ns {time_ns}")
    group = get("group")
    return Event(
        line=line,
        process=text_of(get("process"), "process"),
        id=optional_number_of(get("id"), "id"),
        outcome=outcome,
        function=function,
        time_ns=time_ns,
        start_ns=start_ns,
        ops=_parse_ops(get("ops"), _MICRO_OPS_OF[function]),
        acks=_ACKS[acks],
        attempts=optional_number_of(get("attempts"), "attempts"),
        group=None if group is None else text_of(group, "group"),
    )


def _parse_ops(ops: object, decoders: dict[str, Callable[[list[object]], MicroOp]]) -> tuple[MicroOp, ...]:
    if ops is None:
        return ()
    parsed = []
    for op in list_of(ops, "ops"):
        arguments = list_of(op, "micro-operation")
        name = arguments[0] if arguments else None
        decoder = decoders.get(name) if isinstance(name, str) else None
        if decoder is None:
            raise FieldError(f"micro-operation {op!r} is none of {', '.join(decoders)}")
        parsed.append(decoder(arguments))
    return tuple(parsed)


def _parse_send(op: list[object]) -> Send:
    length = length_of(op, 4, 7)
    offset = optional_number_of(op[4], "offset") if length > 4 else None
    key = text_of(op[6], "key") if length > 6 else None
    return Send(where_of(op), value_of(op[3]), offset, _source(op[5]) if length > 5 else None, key)


def _source(value: object) -> Source | None:
    if value is None:
        return None
    source = ["source", *list_of(value, "source")]
    name = text_of(source[4], "source name") if length_of(source, 4, 5) == 5 else ""
    topic, partition = where_of(source)
    return topic, partition, number_of(source[3], "source offset"), name


def _parse_poll(op: list[object]) -> Poll:
    length = length_of(op, 4, 6)
    end_offset = optional_number_of(op[4], "end_offset") if length > 4 else None
    ending = text_of(op[5], "ending") if length > 5 else None
    return Poll(where_of(op), records_of(op[3]), end_offset, ending)


def _parse_commit(op: list[object]) -> Commit:
    lease_epoch = optional_number_of(op[4], "lease_epoch") if length_of(op, 4, 5) == 5 else None
    return Commit(where_of(op), number_of(op[3], "offset"), lease_epoch)


def _parse_committed(op: list[object]) -> Committed:
    length_of(op, 4, 4)
    return Committed(where_of(op), optional_number_of(op[3], "offset"))


def _parse_reset(op: list[object]) -> Reset:
    length_of(op, 4, 4)
    return Reset(where_of(op), optional_number_of(op[3], "offset"))


def _parse_assign(op: list[object]) -> Assign:
    length_of(op, 2, 2)
    kept, started = [], []
    for entry in list_of(op[1], "assignment"):
        partition = ["assign", *list_of(entry, "assigned partition")]
        if length_of(partition, 3, 4) == 3:
            kept.append(where_of(partition))
        else:
            started.append((where_of(partition), optional_number_of(partition[3], "position")))
    return Assign(tuple(kept), tuple(started))


def _parse_subscribe(op: list[object]) -> Subscribe:
    length_of(op, 2, 2)
    return Subscribe(tuple(text_of(topic, "topic") for topic in list_of(op[1], "topics")))


def _parse_seek(op: list[object]) -> Seek:
    length_of(op, 4, 4)
    return Seek(where_of(op), optional_number_of(op[3], "position"))


def _parse_truncate(op: list[object]) -> Truncate:
    length_of(op, 4, 4)
    return Truncate(where_of(op), number_of(op[3], "before_offset"))


_DECODER = json.JSONDecoder()
_FIELDS = {
    *("process", "id", "type", "f", "time_ns", "start_ns", "wall_ms", "ops", "acks", "attempts", "group"),
}
_OUTCOMES: dict[object, Outcome] = {outcome.value: outcome for outcome in Outcome}
_FUNCTIONS: dict[object, Function] = {function.value: function for function in Function}
_ACKS: dict[object, Acks | None] = {None: None, **{acks.value: acks for acks in Acks}}
_DECODERS: dict[str, Callable[[list[object]], MicroOp]] = {
    "send": _parse_send,
    "poll": _parse_poll,
    "commit": _parse_commit,
    "committed": _parse_committed,
    "reset": _parse_reset,
    "assign": _parse_assign,
    "subscribe": _parse_subscribe,
    "seek": _parse_seek,
    "truncate": _parse_truncate,
    **QUEUE_DECODERS,
}
_OF_TRANSACTIONS = ("send", "poll", "commit", "schedule", "acknowledge")
_MICRO_OPS_OF = {
    function: {
        name: decoder
        for name, decoder in _DECODERS.items()
        if name == function
        or (function is Function.TXN and name in _OF_TRANSACTIONS)
        or (function is Function.ACQUIRE and name in ("nonce", "acquired", "acknowledge"))
    }
    for function in Function
}
