"""The parser of a history's lines. `format` says what they mean."""

import json
from collections.abc import Callable

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
    TopicPartition,
    Truncate,
    Value,
)


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
    except _FieldError as error:
        raise MalformedHistoryError(line, str(error)) from None


class _FieldError(ValueError):
    pass


def _parse_event(line: int, fields: dict[str, object]) -> Event:
    if not fields.keys() <= _FIELDS:
        raise _FieldError(f"unknown field {min(fields.keys() - _FIELDS)!r}")
    get = fields.get
    outcome = _OUTCOMES.get(_str(get("type"), "type"))
    if outcome is None:
        raise _FieldError(f"type {get('type')!r} is none of {', '.join(Outcome)}")
    function = _FUNCTIONS.get(_str(get("f"), "f"))
    if function is None:
        raise _FieldError(f"f {get('f')!r} is none of {', '.join(Function)}")
    acks = get("acks")
    if acks is not None and _str(acks, "acks") not in _ACKS:
        raise _FieldError(f"acks {acks!r} is none of {', '.join(Acks)}")
    time_ns = _int(get("time_ns"), "time_ns")
    start_ns = _optional_int(get("start_ns"), "start_ns")
    if start_ns is not None and (outcome is Outcome.INVOKE or start_ns > time_ns):
        raise _FieldError(f"start_ns {start_ns} stands on an invoke or lies after time_ns {time_ns}")
    group = get("group")
    return Event(
        line=line,
        process=_str(get("process"), "process"),
        id=_optional_int(get("id"), "id"),
        outcome=outcome,
        function=function,
        time_ns=time_ns,
        start_ns=start_ns,
        ops=_parse_ops(get("ops"), _MICRO_OPS_OF[function]),
        acks=_ACKS[acks],
        attempts=_optional_int(get("attempts"), "attempts"),
        group=None if group is None else _str(group, "group"),
    )


def _parse_ops(ops: object, decoders: dict[str, Callable[[list[object]], MicroOp]]) -> tuple[MicroOp, ...]:
    if ops is None:
        return ()
    parsed = []
    for op in _list(ops, "ops"):
        arguments = _list(op, "micro-operation")
        name = arguments[0] if arguments else None
        decoder = decoders.get(name) if isinstance(name, str) else None
        if decoder is None:
            raise _FieldError(f"micro-operation {op!r} is none of {', '.join(decoders)}")
        parsed.append(decoder(arguments))
    return tuple(parsed)


def _parse_send(op: list[object]) -> Send:
    length = _length(op, 4, 6)
    offset = _optional_int(op[4], "offset") if length > 4 else None
    return Send(_where(op), _value(op[3]), offset, _source(op[5]) if length > 5 else None)


def _source(value: object) -> Source | None:
    if value is None:
        return None
    source = ["source", *_list(value, "source")]
    name = _str(source[4], "source name") if _length(source, 4, 5) == 5 else ""
    topic, partition = _where(source)
    return topic, partition, _int(source[3], "source offset"), name


def _parse_poll(op: list[object]) -> Poll:
    length = _length(op, 4, 6)
    end_offset = _optional_int(op[4], "end_offset") if length > 4 else None
    ending = _str(op[5], "ending") if length > 5 else None
    records = []
    for record in _list(op[3], "records"):
        if type(record) is not list or len(record) != 2:
            raise _FieldError(f"a record is [offset, value], not {record!r}")
        offset, value = record
        if type(offset) is not int or offset < 0:
            raise _FieldError(f"offset {offset!r} is not a whole number from 0")
        if type(value) is not str:
            _value(value)
        records.append((offset, value))
    return Poll(_where(op), tuple(records), end_offset, ending)


def _parse_commit(op: list[object]) -> Commit:
    lease_epoch = _optional_int(op[4], "lease_epoch") if _length(op, 4, 5) == 5 else None
    return Commit(_where(op), _int(op[3], "offset"), lease_epoch)


def _parse_committed(op: list[object]) -> Committed:
    _length(op, 4, 4)
    return Committed(_where(op), _optional_int(op[3], "offset"))


def _parse_reset(op: list[object]) -> Reset:
    _length(op, 4, 4)
    return Reset(_where(op), _optional_int(op[3], "offset"))


def _parse_assign(op: list[object]) -> Assign:
    _length(op, 2, 2)
    kept, started = [], []
    for entry in _list(op[1], "assignment"):
        partition = ["assign", *_list(entry, "assigned partition")]
        if _length(partition, 3, 4) == 3:
            kept.append(_where(partition))
        else:
            started.append((_where(partition), _optional_int(partition[3], "position")))
    return Assign(tuple(kept), tuple(started))


def _parse_subscribe(op: list[object]) -> Subscribe:
    _length(op, 2, 2)
    return Subscribe(tuple(_str(topic, "topic") for topic in _list(op[1], "topics")))


def _parse_seek(op: list[object]) -> Seek:
    _length(op, 4, 4)
    return Seek(_where(op), _optional_int(op[3], "position"))


def _parse_truncate(op: list[object]) -> Truncate:
    _length(op, 4, 4)
    return Truncate(_where(op), _int(op[3], "before_offset"))


def _length(op: list[object], least: int, most: int) -> int:
    if not least <= len(op) <= most:
        raise _FieldError(f"micro-operation {op!r} has {len(op)} elements, not {least} to {most}")
    return len(op)


def _where(op: list[object]) -> TopicPartition:
    return _str(op[1], "topic"), _int(op[2], "partition")


def _value(value: object) -> Value:
    if type(value) is str or type(value) is int:
        return value
    raise _FieldError(f"value {value!r} is neither a string nor an integer")


def _str(value: object, name: str) -> str:
    if isinstance(value, str) and value:
        return value
    raise _FieldError(f"{name} {value!r} is not a string")


def _int(value: object, name: str) -> int:
    if type(value) is int and value >= 0:
        return value
    raise _FieldError(f"{name} {value!r} is not a whole number from 0")


def _optional_int(value: object, name: str) -> int | None:
    return None if value is None else _int(value, name)


def _list(value: object, name: str) -> list[object]:
    if isinstance(value, list):
        return value
    raise _FieldError(f"{name} {value!r} is not a list")


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
}
_MICRO_OPS_OF = {
    function: {
        name: decoder
        for name, decoder in _DECODERS.items()
        if name == function or (function is Function.TXN and name in ("send", "poll", "commit"))
    }
    for function in Function
}
