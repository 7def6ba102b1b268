"""Names of groups, transactional ids and instances as Kafka has them, and as the service takes them.

Kafka takes any text. The service takes the letters of names. So a name with another letter begins with `kafka..` in the
service, and each letter that a name cannot have is a dot and two hexadecimal digits: `team/billing` is
`kafka..team.2fbilling`. All other names are the same on both sides. Two names stay two: a name of Kafka that begins
with `kafka..` is written in that way, too.
"""

import re
from collections.abc import Mapping
from dataclasses import fields, replace

from penstock_kafka.dispatch.api import Answer, Api, Call, Request

_MARK = "kafka.."
_SLASH = ".2f"
_PLAIN = re.compile(r"[A-Za-z0-9._-]*", re.ASCII)
_OTHER = re.compile(rb"[^A-Za-z0-9_-]")
_ESCAPED = re.compile(rb"\.([0-9a-f]{2})")
_NAMES = frozenset(
    {"group_id", "group_instance_id", "instance_id", "transactional_id", "v3_and_below_transactional_id"}
)
_LISTS = frozenset({"group_ids", "groups", "groups_names", "members", "transactional_ids", "transactions"})
_ANSWER_LISTS = ("groups", "members", "results", "transaction_states")


def service_name(name: str) -> str:
    """The service's name of a group, a transactional id or an instance of Kafka."""
    if _PLAIN.fullmatch(name) and not name.startswith(_MARK) and name not in (".", ".."):
        return name
    return _marked(name)


def service_prefixes(prefix: str) -> tuple[str, ...]:
    """The beginnings in the service of all names that begin with `prefix` in Kafka, which is not empty.

    `team` begins `team.a`, which stays, and `team/a`, which is `kafka..team.2fa`. Raises ValueError for a prefix with
    which the service's forms of other names begin, too.
    """
    if not _PLAIN.fullmatch(prefix) or prefix.startswith(_MARK):
        return (_marked(prefix),)
    if _MARK.startswith(prefix):
        raise ValueError(f"{prefix!r} begins {_MARK!r}, with which the service's forms of other names begin")
    return prefix, _marked(prefix)


def kafka_prefix(prefix: str) -> str:
    """The prefix in Kafka of a beginning that `service_prefixes` gave; others stay."""
    plain = kafka_name(prefix + _SLASH).removesuffix("/")
    return plain if plain and _marked(plain) == prefix else prefix


def _marked(name: str) -> str:
    return _MARK + _OTHER.sub(lambda found: b".%02x" % found[0][0], name.encode("utf-8", "surrogatepass")).decode()


def kafka_name(name: str) -> str:
    """Kafka's name. The name of another client that only looks like one of Kafka's stays."""
    found = _ESCAPED.sub(lambda digits: bytes.fromhex(digits[1].decode()), name.removeprefix(_MARK).encode())
    try:
        plain = found.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return name
    return plain if name.startswith(_MARK) and service_name(plain) == name else name


def with_service_names(api: Api) -> Api:
    """The API, whose handler sees the service's names in requests, and whose clients see Kafka's in answers."""

    async def answer(call: Call) -> Answer | None:
        found = await api.handler(replace(call, request=_in_service(call.request)))
        return None if found is None else _in_kafka(found)

    return replace(api, handler=answer)


def _in_service(request: Request) -> Request:
    """A request with other names at its top, or in its lists of groups, members and transactions."""
    changes: dict[str, object] = {}
    for each in fields(request):
        value = getattr(request, each.name)
        if each.name in _NAMES and isinstance(value, str):
            changes[each.name] = service_name(value)
        elif each.name in _LISTS and value:
            changes[each.name] = tuple(service_name(one) if isinstance(one, str) else _in_service(one) for one in value)
    return replace(request, **changes) if changes else request


def _in_kafka(answer: Answer) -> Answer:
    changes: dict[str, object] = {
        name: kafka_name(value) for name, value in answer.items() if name in _NAMES and isinstance(value, str)
    }
    for name in _ANSWER_LISTS:
        value = answer.get(name)
        if isinstance(value, list | tuple):
            changes[name] = [_in_kafka(each) if isinstance(each, Mapping) else each for each in value]
    return {**answer, **changes} if changes else answer
