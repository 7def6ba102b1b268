"""ConsumerGroupHeartbeat (KIP-848), the newer protocol: it becomes the service's heartbeat.

| member epoch | the client                                  | the gateway                                   |
|--------------|---------------------------------------------|-----------------------------------------------|
| 0            | joins                                       | joins, and answers the partitions granted     |
| above 0      | stays, and says what it holds if it changed | claims what the client holds or was promised  |
| -1           | leaves                                      | leaves                                        |
| -2           | a static member stops for a short while     | forgets it: the session ends by itself        |

An answer has the assignment if it is another one than the client was told, and after each full request: then the answer
before may be lost.

Regular expressions of topic names (KIP-848): a pattern of ours where both say the same, else the names that match.

Kafka matches the whole name by RE2/J. Here the gateway evaluates the expression by RE2, in linear time, and subscribes
the member to the names that match. It looks for new names with the member's heartbeats. It sends the names as patterns
without `*`: the service then leaves out topics that the client may not read, and does not refuse the others.
"""

import asyncio
import re
from collections import OrderedDict

import re2

from penstock.model import TopicPartition
from penstock.system import monotonic_ms
from penstock_core.errors import PenstockError
from penstock_core.groups.group import parse_subscription
from penstock_core.groups.topic_patterns import WILDCARD, check_pattern
from penstock_core.ids import is_reserved
from penstock_core.limits import WAITING_HEARTBEAT_MS
from penstock_kafka.dispatch.api import Answer, Call, Request, Uuid
from penstock_kafka.errors import KafkaError, RequestRefused, error_message
from penstock_kafka.groups.classic.join_group import made_member_id
from penstock_kafka.groups.group_errors import group_error, uuid_of_id
from penstock_kafka.groups.members.member import KafkaMember, MemberNames, kafka_id, service_id
from penstock_kafka.groups.members.sessions import Sessions
from penstock_kafka.service.service import TopicDirectory

_JOINS, _LEAVES, _LEAVES_FOR_A_WHILE = 0, -1, -2
_ASSIGNORS = {"range": "range", "uniform": "sticky"}
NAMES_AGE_MS_MAX = 10_000  # as often as a broker looks for new names of an expression
_PARTS = re.compile(r"\.\*|\\\.|\\-|[A-Za-z0-9_-]")
_EXPRESSIONS_MAX = 128  # whose names are remembered
_MEMORY_BYTES_MAX = 1 << 20  # of one compiled expression
_STEPS_MAX = 5_000  # of its program: librdkafka joins all patterns of a consumer into one expression


class ConsumerGroupHeartbeat:
    """Answers ConsumerGroupHeartbeat."""

    def __init__(self, sessions: Sessions, topics: TopicDirectory) -> None:
        self._sessions = sessions
        self._topics = topics
        self._regexes = TopicRegexes(topics)

    async def answer(self, call: Call) -> Answer:
        """The member's epoch, and its assignment where it has changed."""
        request = call.request
        try:
            if request.member_epoch == _JOINS:
                return await self._join(call)
            if request.member_epoch > 0:
                return await self._stay(call)
            return await self._leave(request)
        except (PenstockError, RequestRefused) as error:
            return {
                "error_code": group_error(error),
                "error_message": error_message(error),
                "member_id": request.member_id,
                "member_epoch": max(0, request.member_epoch),
            }

    async def _join(self, call: Call) -> Answer:
        request = call.request
        member_id = str(request.member_id) or made_member_id(call.client_id)
        if request.subscribed_topic_names is None and not getattr(request, "subscribed_topic_regex", None):
            raise RequestRefused(KafkaError.invalid_request, "a member joins with a subscription")
        member = KafkaMember(names=_names(request, member_id, call.client_id), is_classic=False)
        self._refuse_twin(member.names)
        await self._subscribe(member, request)
        member.gone, member.looked_ms = call.peer.gone, monotonic_ms()
        assignor = request.server_assignor
        if assignor is not None and assignor not in _ASSIGNORS:
            raise RequestRefused(
                KafkaError.unsupported_assignor, f"assignor {assignor[:100]!r}: use {', '.join(_ASSIGNORS)}"
            )
        self._sessions.book.remember(member)
        await self._sessions.beat(member, {} if assignor is None else {"assignor": _ASSIGNORS[assignor]})
        self._sessions.book.hurry(member.names.group, member)
        return self._told(member, is_full=True)

    async def _stay(self, call: Call) -> Answer:
        request = call.request
        names = _names(request, str(request.member_id))
        member = await self._sessions.find(names, request.member_epoch)
        member.is_classic, member.gone = False, call.peer.gone
        await self._subscribe(member, request)
        owned = request.topic_partitions
        if owned is not None:
            member.owned = _held(member, owned)
        if member.owned is not None:
            promised = member.owned | member.told
            if promised != member.claimed:
                member.holds(promised)
        looked_ms, member.looked_ms = member.looked_ms, monotonic_ms()
        wanted = {*member.topics, *(each.topic for each in member.told)}
        member.looks_at_topics |= any(self._topics.changed_ms(each) >= looked_ms for each in wanted)
        await self._sessions.catch_up(member, (member.owned or frozenset()) | member.told)
        is_full = owned is not None or request.subscribed_topic_names is not None
        return self._told(member, is_full=is_full)

    def _refuse_twin(self, names: MemberNames) -> None:
        """Raise UNRELEASED_INSTANCE_ID while another process of the instance is connected to this gateway.

        One that was killed has no connection, and its successor goes on at once. One whose host has died may seem
        connected for minutes: it counts until its session ends.
        """
        twin = self._sessions.book.twin_of(names)
        if twin is None or twin.gone is None or twin.ends_ms <= self._sessions.now_ms():
            return
        if not twin.gone.is_set():
            raise RequestRefused(
                KafkaError.unreleased_instance_id, f"another process is instance {names.instance_id}: it is connected"
            )

    async def _subscribe(self, member: KafkaMember, request: Request) -> None:
        """Subscribe the member to the names it asks for, and those that match its expression now.

        A request may say nothing of either. A gateway that took the member over knows no expression of it until the
        client sends it again, as clients do on a new connection: the names found so far go on. As with a broker, what a
        new expression with names finds comes with the next heartbeat.
        """
        names, expression = request.subscribed_topic_names, getattr(request, "subscribed_topic_regex", None)
        is_known = names is None and expression is None
        if names is not None:
            member.topics = tuple(map(str, names))
        if expression is not None:
            member.expression = str(expression)
            if not (member.expression and member.topics):
                member.matched = member.expression
        if is_known and not member.expression:
            return
        patterns: tuple[str, ...] = ()
        if member.expression and (is_known or member.matched == member.expression):
            patterns, member.matched = await self._regexes.patterns(member.expression), member.expression
        member.subscription = parse_subscription(member.topics, patterns)

    async def _leave(self, request: Request) -> Answer:
        member_id = str(request.member_id)
        names = _names(request, member_id)
        member = self._sessions.book.find(names.group, names.member_id)
        if request.member_epoch == _LEAVES_FOR_A_WHILE:
            if member is not None:
                self._sessions.book.forget(member)
        else:
            await self._sessions.leave(member or KafkaMember(names=names))
        return {"error_code": KafkaError.none, "member_id": member_id, "member_epoch": request.member_epoch}

    def _told(self, member: KafkaMember, *, is_full: bool) -> Answer:
        is_new = member.is_untold or member.assignment != member.told
        if is_new or member.generation < 0:
            member.tell(self._sessions.now_ms())
        is_quiet = member.is_complete and member.matched == member.expression
        interval_ms = member.heartbeat_after_ms if is_quiet else WAITING_HEARTBEAT_MS
        return {
            "error_code": KafkaError.none,
            "member_id": kafka_id(member.names.member_id),
            "member_epoch": member.generation,
            "heartbeat_interval": interval_ms or WAITING_HEARTBEAT_MS,
            "assignment": {"topic_partitions": _by_topic_id(member)} if is_new or is_full else None,
        }


def _names(request: Request, member_id: str, client_id: str = "") -> MemberNames:
    return MemberNames(
        group=str(request.group_id),
        member_id=service_id(member_id),
        instance_id=request.instance_id,
        client_id=client_id,
    )


def _held(member: KafkaMember, owned: Request) -> frozenset[TopicPartition]:
    """The partitions that the client names, of those for which the member has a lease."""
    known = {(uuid_of_id(lease.topic_id), each.partition): each for each, lease in member.leases.items()}
    named = ((each.topic_id, int(number)) for each in owned for number in each.partitions)
    return frozenset(known[key] for key in named if key in known)


def _by_topic_id(member: KafkaMember) -> list[Answer]:
    found: dict[Uuid, list[int]] = {}
    for each in sorted(member.told):
        found.setdefault(uuid_of_id(member.leases[each].topic_id), []).append(each.partition)
    return [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in found.items()]


class TopicRegexes:
    """The names that match expressions, for all members of a gateway."""

    def __init__(self, topics: TopicDirectory) -> None:
        self._topics = topics
        self._found: OrderedDict[str, tuple[float, tuple[str, ...]]] = OrderedDict()

    async def patterns(self, expression: str) -> tuple[str, ...]:
        """Patterns of the names that match, which are a few seconds old. Raises RequestRefused, and PenstockError."""
        simple = simple_patterns(expression)
        if simple:
            return simple
        looked_ms, names = self._found.get(expression, (-NAMES_AGE_MS_MAX, ()))
        now_ms = monotonic_ms()
        if now_ms - looked_ms >= NAMES_AGE_MS_MAX:
            compiled = _compiled(expression)
            names = await asyncio.to_thread(_matching, compiled, [each.name for each in await self._topics.topics()])
            self._found[expression] = (now_ms, names)
        self._found.move_to_end(expression)
        if len(self._found) > _EXPRESSIONS_MAX:
            self._found.popitem(last=False)
        return names


def simple_patterns(expression: str) -> tuple[str, ...]:
    """Patterns with `*` that match the same names; none where only a regular expression can say it.

    librdkafka sends `(^a.*)|(^b)` for the patterns `^a.*` and `^b`.
    """
    return tuple(filter(None, patterns)) if all(patterns := [*map(_pattern, expression.split("|"))]) else ()


def _pattern(text: str) -> str:
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    text = text.removeprefix("^").removesuffix("$")
    parts = _PARTS.findall(text)
    if "".join(parts) != text:
        return ""
    pattern = "".join(WILDCARD if part == ".*" else part[-1] for part in parts)
    if pattern:
        check_pattern(pattern)
    return pattern


def _compiled(expression: str) -> "re2._Regexp":
    options = re2.Options()
    options.max_mem, options.log_errors, options.never_capture = _MEMORY_BYTES_MAX, False, True
    try:
        compiled = re2.compile(expression, options)
    except re2.error as error:
        raise _refused(expression, f"RE2 says {error!s:.200}") from error
    if compiled.programsize > _STEPS_MAX:
        raise _refused(expression, f"{compiled.programsize} steps: {_STEPS_MAX} at most")
    return compiled


def _matching(compiled: "re2._Regexp", names: list[str]) -> tuple[str, ...]:
    """The names that match as a whole. No expression finds a reserved topic."""
    return tuple(name for name in names if not is_reserved(name) and compiled.fullmatch(name))


def _refused(expression: str, why: str) -> RequestRefused:
    return RequestRefused(KafkaError.invalid_regular_expression, f"{expression[:200]!r}: {why}")
