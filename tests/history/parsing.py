"""The parser of a history's lines. `format` says what they mean."""

import json

from tests.history.fields import (
    FieldError,
    list_of,
    number_of,
    optional_number_of,
    text_of,
)
from tests.history.format import (
    Acks,
    Event,
    Function,
    MalformedHistoryError,
    MicroOp,
    Outcome,
)
from tests.history.micro_ops import DECODERS, decode_micro_op


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
        ops=_parse_ops(get("ops"), _NAMES_OF[function]),
        acks=_ACKS[acks],
        attempts=optional_number_of(get("attempts"), "attempts"),
        group=None if group is None else text_of(group, "group"),
    )


def _parse_ops(ops: object, names: list[str]) -> tuple[MicroOp, ...]:
    if ops is None:
        return ()
    parsed = []
    for op in list_of(ops, "ops"):
        arguments = list_of(op, "micro-operation")
        name = arguments[0] if arguments else None
        if not isinstance(name, str) or name not in names:
            raise FieldError(f"micro-operation {op!r} is none of {', '.join(names)}")
        parsed.append(decode_micro_op(name, arguments))
    return tuple(parsed)


_DECODER = json.JSONDecoder()
_FIELDS = {
    *("process", "id", "type", "f", "time_ns", "start_ns", "wall_ms", "ops", "acks", "attempts", "group"),
}
_OUTCOMES: dict[object, Outcome] = {outcome.value: outcome for outcome in Outcome}
_FUNCTIONS: dict[object, Function] = {function.value: function for function in Function}
_ACKS: dict[object, Acks | None] = {None: None, **{acks.value: acks for acks in Acks}}
_OF_TRANSACTIONS = ("send", "poll", "commit", "schedule", "acknowledge")
_NAMES_OF = {
    function: [
        name
        for name in DECODERS
        if name == function
        or (function is Function.TXN and name in _OF_TRANSACTIONS)
        or (function is Function.ACQUIRE and name in ("nonce", "acquired", "acknowledge"))
    ]
    for function in Function
}
