"""JSON as requests carry it: parsed strictly, and with bounds on what one document may cost."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from penstock_core.errors import shown
from penstock_core.limits import JSON_DEPTH_MAX, JSON_NAMES_MAX


def parse_json(text: str, number: Callable[[str], Any] | None = None) -> Any:
    """The value that the JSON `text` holds. `number` makes a value of each number's text; None takes int and float.

    Raises ValueError for what is not JSON (RFC 8259), for NaN and infinities, and for numbers of thousands of digits.
    Raises it also for an object that has more than `JSON_NAMES_MAX` names, or one name twice: two readers of the
    document may take different values for it. And for one that is nested deeper than `JSON_DEPTH_MAX`: code that walks
    or formats it later needs no bound of its own.
    """
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=number, parse_int=number
        )
    except RecursionError as error:
        raise ValueError(f"it is nested too deep: {error}") from error
    if text.count("[") + text.count("{") > JSON_DEPTH_MAX:
        _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    level: list[Any] = [[value]]
    for _ in range(JSON_DEPTH_MAX + 1):
        level = [
            inner
            for each in level
            for inner in (each.values() if type(each) is dict else each)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {JSON_DEPTH_MAX} arrays and objects")


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > JSON_NAMES_MAX:
        raise ValueError(f"an object has {len(pairs)} names: at most {JSON_NAMES_MAX} are allowed")
    fields = dict(pairs)
    if len(fields) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"an object has the name {shown(twice)} twice: give each name once")
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
