"""Fields of dataclasses: values from the service's answers, settings as options of a client; and sizes as texts."""

import dataclasses
import difflib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


# What users of Kafka's clients write, and what they find here.
_WORDS_OF_KAFKA = {
    "bootstrap_servers": "give url=, or let the environment tell it",
    "compression": "use compression_type",
    "group": "use group_id",
    "topics": "name the topics first: Consumer('orders', 'bills')",
}

_METHODS_OF_KAFKA = {
    "start": "it needs none: use it in `with` or `async with`, or close() it at the end",
    "stop": "use close()",
    "send_and_wait": "wait for what send() returns: await (await producer.send(...)), in threads by .result()",
    "produce": "use send()",
    "poll": "it needs none: on_delivery is called by itself",
    "getone": "iterate, or use poll()",
    "getmany": "use poll()",
    "consume": "use poll()",
    "begin_transaction": "use transaction() in `with` or `async with`",
    "commit_transaction": "use transaction() in `with` or `async with`",
    "abort_transaction": "use transaction() in `with` or `async with`, which aborts at an exception",
    "list_topics": "use Admin.list_topics()",
    "partitions_for": "use Admin.describe_topic()",
    "partitions_for_topic": "use Admin.describe_topic()",
}

Value = TypeVar("Value", bound="DataclassInstance")
Init = TypeVar("Init", bound=Callable[..., None])
_UNIT_BYTES: dict[str, int] = {"": 1, "B": 1} | {
    unit: factor ** (power + 1)
    for form, factor in (("{}B", 1_000), ("{}IB", 1_024))
    for power, unit in enumerate(map(form.format, "KMGT"))
}
SIZE = "([0-9]{1,15})([bB]|[kKmMgGtT][iI]?[bB]|)"  # for Python and JSON Schema
_SIZE = re.compile(SIZE)


class NamedClient:
    """A client that tells its service in its repr(), and our word for a method of Kafka's clients."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.__dict__['_client'].service}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = _METHODS_OF_KAFKA.get(name)
            what = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(f"{what}: {hint}" if hint else what, name=name, obj=self)


def value_of(kind: type[Value], answer: Mapping[str, Any]) -> Value:
    """Every field of `kind` from the answer, lists as tuples. Other fields of the answer are left out.

    An older service leaves out what it does not know. Fields with a default have that then.
    """
    known = {
        each.name: answer[each.name]
        for each in fields(kind)
        if each.name in answer or each.default is each.default_factory is MISSING
    }
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in known.items()})


def shows_fields_of(settings: type[Any]) -> Callable[[Init], Init]:
    """Gives an `__init__` that takes `**options` the signature and the docs of the dataclass `settings`.

    Type checkers read the TypedDict of the options. `help()`, `inspect.signature` and notebooks read what this sets.
    """

    def decorate(init: Init) -> Init:
        signature = inspect.signature(init)
        given = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        options = [
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
            for field in dataclasses.fields(settings)
        ]
        init.__dict__["__signature__"] = signature.replace(parameters=[*given, *options])
        init.__doc__ = f"{inspect.getdoc(init)}\n\n{inspect.getdoc(settings)}"
        return init

    return decorate


def parse_size(text: str) -> int:
    """The bytes of a whole number of bytes, or of KB, MB, GB, TB, KiB, MiB, GiB or TiB. Raises ValueError."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _UNIT_BYTES[match[2].upper()]


def settings_of(settings: type[Value], client: str, options: Mapping[str, Any]) -> Value:
    """The settings of a client's options. Raises TypeError for an option that there is none of, with a likely one."""
    known = [each.name for each in fields(settings)]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = _WORDS_OF_KAFKA.get(name) or (f"did you mean {near[0]}?" if near else f"see help({client})")
            raise TypeError(f"{client} has no option {name!r}: {hint}")
    return settings(**options)
