"""One led group at one gateway: the last view of its document, the clients that wait for it, and the watch over it.

Any gateway may change the document, each time by compare-and-set on what it has read. A gateway may forget its board at
any time. All clients of the group at this gateway share a view: it answers heartbeats while it is young, and each new
view wakes the clients that wait for a generation or an assignment.

What one gateway has seen of a led group over time: which sessions have ended, and whether a phase takes too long.

No clock is compared with another one. A session has ended if two views of the document, a session apart by this
gateway's own monotonic clock, show the same count of beats, and this gateway has heard nothing of the member between
them. A phase is overdue in the same way. A write that succeeds is a view, too: it is one on condition of the version.

Reads of a gateway that was frozen, or cut off from the service, lie far apart or take long. It could not have heard of
its members meanwhile, so it begins anew: nothing of what it saw before counts.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from penstock.system import monotonic_ms, random_fraction
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import (
    GROUP_DOCUMENT_BYTES_MAX,
    KAFKA_LED_LOOK_MS_MAX,
    KAFKA_LED_TRIES_MAX,
    KAFKA_LED_WAIT_LOOK_MS,
)
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.groups.led.led_codec import Documents, decoded, encoded
from penstock_kafka.groups.led.led_group import (
    LedGroup,
    LedMember,
    Phase,
    beaten,
    checked,
    joined,
    overdue,
    synced,
    without,
)

_LOOKS_PER_SESSION = 3
_OLD_LOOKS = 2  # a view that is older than so many pauses between looks answers no heartbeat
_BACKOFF_MS = 50
_OVERTAKEN = (ErrorCode.CONCURRENT_UPDATE, ErrorCode.UNKNOWN_GROUP)
_GRACE_MS = 5_000  # that a JoinGroup waits longer than its rebalance time-out
_LOG = logging.getLogger("penstock.kafka")
_GAP_PART = 2  # reads that lie more than this part of a session apart begin anew


class LedBoard:
    """The group `name` at the gateway `gateway`."""

    def __init__(self, name: str, gateway: str, documents: Documents) -> None:
        self.name = name
        self._gateway = gateway
        self._documents = documents
        self._group = LedGroup(protocol_type="")
        self._version: int | None = None
        self._asked_ms: float | None = None
        self._vigil = Vigil()
        self._heard: set[str] = set()  # since the last beats were stored
        self._stored_ms = monotonic_ms()
        self._waiting: Counter[str] = Counter()  # requests that wait, by member
        self._joins: Counter[str] = Counter()
        self._lock = asyncio.Lock()
        self._viewed = asyncio.Event()
        self._nudged = asyncio.Event()
        self._used_ms = monotonic_ms()

    async def join(self, wish: LedMember, protocol_type: str, gone: asyncio.Event) -> LedGroup:
        """The group of the generation that begins once all members have joined. Raises RequestRefused, PenstockError.

        Its leader's JoinGroup is answered by all members of it.
        """
        name = wish.member_id
        self._joins[name] += 1
        join, until_ms = self._joins[name], monotonic_ms() + wish.rebalance_ms + _GRACE_MS
        with self._waits(name):
            group = await self._change(lambda seen: joined(_of_type(seen, protocol_type), wish))
            while True:
                member = group.members.get(name)
                if member is None:
                    raise RequestRefused(KafkaError.unknown_member_id, "the group has let the member go")
                if self._joins[name] != join:
                    raise RequestRefused(KafkaError.rebalance_in_progress, "the client has sent another JoinGroup")
                if group.phase in (Phase.SYNCING, Phase.STABLE):
                    return group
                if not member.has_joined:  # another round has begun: this JoinGroup counts for it, too
                    group = await self._change(lambda seen: joined(_of_type(seen, protocol_type), wish))
                else:
                    group = await self._next_view(gone, until_ms)

    async def sync(
        self, name: str, generation: int, assignments: Mapping[str, bytes], gone: asyncio.Event
    ) -> tuple[LedGroup, bytes]:
        """The group and the member's assignment, once the leader has sent it. Raises RequestRefused, PenstockError."""
        with self._waits(name):
            group = await self._change(lambda seen: synced(seen, name, generation, assignments))
            until_ms = monotonic_ms() + group.rebalance_ms + _GRACE_MS
            while group.phase is not Phase.STABLE or group.generation != generation:
                if group.phase is not Phase.SYNCING or group.generation != generation:
                    raise RequestRefused(KafkaError.rebalance_in_progress, "another generation has begun")
                group = await self._next_view(gone, until_ms)
            return group, checked(group, name, generation).assignment

    async def beat(self, name: str, generation: int) -> KafkaError:
        """The answer to a heartbeat, from a view that is young enough. Raises RequestRefused, PenstockError."""
        self._used_ms = began_ms = monotonic_ms()
        if self._asked_ms is None or began_ms - self._asked_ms > _OLD_LOOKS * self._look_ms():
            await self.read()
        try:
            checked(self._group, name, generation)
        except RequestRefused:
            if self._asked_ms is None or self._asked_ms < began_ms:
                await self.read()  # another gateway may have let it join
            checked(self._group, name, generation)
        self._hear(name)
        return KafkaError.rebalance_in_progress if self._group.phase is Phase.JOINING else KafkaError.none

    async def leave(self, name: str) -> None:
        """The member goes. Raises RequestRefused if it is none, and PenstockError."""
        self._used_ms = monotonic_ms()
        found = await self.read()
        if name not in found.members:
            raise RequestRefused(KafkaError.unknown_member_id, f"the group has no member {name:.200}")
        await self._change(lambda seen: without(seen, {name}))

    async def read(self) -> LedGroup:
        """The group as it is now; one without members if there is no document."""
        async with self._lock:
            return await self._read()

    async def watch(self) -> None:
        """Look at the document again and again, until no client of this gateway has asked for long."""
        pause_ms = float(KAFKA_LED_WAIT_LOOK_MS)
        while self._is_wanted():
            is_waited_for = any(self._waiting.values())
            pause_ms = min(1.5 * pause_ms, 1_000) if is_waited_for else KAFKA_LED_WAIT_LOOK_MS
            await self._pause(min(pause_ms, self._look_ms()) if is_waited_for else self._look_ms())
            try:
                await self.look()
            except (PenstockError, RequestRefused) as error:
                _LOG.warning("group %s: its document cannot be kept: %s", self.name, error)

    async def look(self) -> None:
        """One look: store which members are alive, end sessions that are over, and a phase that takes too long.

        One write while all members have come by this gateway; else a read, and a write if there is something to store.
        """
        async with self._lock:
            for name in +self._waiting:
                self._hear(name)
            is_alone = all(each.gateway == self._gateway for each in self._group.members.values())
            if is_alone and self._heard and await self._is_stored(is_view_old=True):
                return
            for attempt in range(KAFKA_LED_TRIES_MAX):
                await self._read()
                if await self._is_stored(is_view_old=False):
                    return
                await self._back_off(attempt)

    async def _is_stored(self, *, is_view_old: bool) -> bool:
        """Write what is due. False if another gateway was faster, or may have been: of an old view a write tells."""
        asked_ms = monotonic_ms()
        self._vigil.wake(asked_ms, self._group.session_ms)
        due = self._due(asked_ms)
        if due is self._group:
            return not is_view_old
        try:
            await self._write(due)
        except PenstockError as error:
            if error.code not in _OVERTAKEN and not error.maybe_applied:
                raise
            return False
        return True

    def _due(self, asked_ms: float) -> LedGroup:
        group = self._group
        ended = self._vigil.ended(group, asked_ms) - {*+self._waiting}
        if ended:
            _LOG.info("group %s: sessions have ended: %s", self.name, ", ".join(sorted(ended)))
        due = without(group, ended)
        if due is group and self._vigil.is_overdue(group, asked_ms):
            _LOG.info("group %s: generation %s takes too long to begin", self.name, group.generation + 1)
            due = overdue(group)
        if asked_ms - self._stored_ms >= 0.9 * self._look_ms():
            due = beaten(due, self._heard, self._gateway)
        return due

    async def _change(self, event: Callable[[LedGroup], LedGroup]) -> LedGroup:
        """The group after an event, which other gateways may have overtaken: then it comes to what they left.

        A read and a write, or a read alone if the event changes nothing.
        """
        self._used_ms = monotonic_ms()
        async with self._lock:
            for attempt in range(KAFKA_LED_TRIES_MAX):
                group = event(await self._read())
                if group is self._group:
                    return group
                try:
                    return await self._write(group)
                except PenstockError as error:
                    if not (error.code in _OVERTAKEN or error.maybe_applied) or attempt == KAFKA_LED_TRIES_MAX - 1:
                        raise
                await self._back_off(attempt)
        raise AssertionError("the last try returns or raises")

    async def _back_off(self, attempt: int) -> None:
        """Two gateways whose looks keep time with each other must not meet again."""
        await asyncio.sleep(_BACKOFF_MS * (attempt + 1) * random_fraction() / 1_000)

    async def _read(self) -> LedGroup:
        asked_ms = monotonic_ms()
        found = await self._documents.read(self.name)
        group = LedGroup(protocol_type="") if found is None or found.data is None else decoded(found.data)
        self._see(group, None if found is None else found.version, asked_ms)
        return group

    async def _write(self, group: LedGroup) -> LedGroup:
        data = encoded(group)
        if len(data) > GROUP_DOCUMENT_BYTES_MAX:
            text = (
                f"group {self.name}: {len(data)} bytes of members and assignments, {GROUP_DOCUMENT_BYTES_MAX} at most"
            )
            _LOG.warning(text)
            raise RequestRefused(KafkaError.group_max_size_reached, text)
        asked_ms = monotonic_ms()
        version = await self._documents.write(self.name, self._version, group.protocol_type, len(group.members), data)
        stored = {name for name in self._heard if _beats(group, name) != _beats(self._group, name)}
        if stored:
            self._stored_ms = asked_ms
            self._heard -= stored
        self._see(group, version, asked_ms)
        return group

    def _see(self, group: LedGroup, version: int | None, asked_ms: float) -> None:
        self._group, self._version, self._asked_ms = group, version, asked_ms
        self._vigil.look(group, asked_ms, monotonic_ms())
        self._heard &= group.members.keys()
        self._viewed.set()
        self._viewed = asyncio.Event()

    def _hear(self, name: str) -> None:
        self._vigil.heard(name, monotonic_ms())
        if name in self._group.members:
            self._heard.add(name)

    async def _next_view(self, gone: asyncio.Event, until_ms: float) -> LedGroup:
        """The next view of the group. Raises RequestRefused once it is too late, or the client has gone."""
        viewed = asyncio.ensure_future(self._viewed.wait())
        closed = asyncio.ensure_future(gone.wait())
        try:
            left_s = max(0.0, until_ms - monotonic_ms()) / 1_000
            await asyncio.wait((viewed, closed), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            viewed.cancel()
            closed.cancel()
        if gone.is_set() or monotonic_ms() >= until_ms:
            raise RequestRefused(KafkaError.coordinator_not_available, "the group has not come to a generation")
        return self._group

    @contextmanager
    def _waits(self, name: str) -> Iterator[None]:
        """While a request of the member waits, the member is alive."""
        self._used_ms = monotonic_ms()
        self._waiting[name] += 1
        self._nudged.set()
        try:
            yield
        finally:
            self._waiting[name] -= 1
            self._waiting += Counter()  # without the members of which none waits
            self._hear(name)

    async def _pause(self, pause_ms: float) -> None:
        self._nudged.clear()
        try:
            async with asyncio.timeout(pause_ms / 1_000):
                await self._nudged.wait()
        except TimeoutError:
            return
        await asyncio.sleep(KAFKA_LED_WAIT_LOOK_MS / 1_000)  # the client that came has just read the document

    def _look_ms(self) -> float:
        return min(KAFKA_LED_LOOK_MS_MAX, self._group.session_ms / _LOOKS_PER_SESSION)

    def _is_wanted(self) -> bool:
        group = self._group
        longest_ms = max([group.rebalance_ms, *(each.session_ms for each in group.members.values())])
        return any(self._waiting.values()) or monotonic_ms() - self._used_ms < 2 * longest_ms + 60_000


def _of_type(group: LedGroup, protocol_type: str) -> LedGroup:
    if group.protocol_type == protocol_type:
        return group
    if group.members:
        raise RequestRefused(KafkaError.inconsistent_group_protocol, f"the group is one of {group.protocol_type:.100}")
    return LedGroup(protocol_type=protocol_type, generation=group.generation, round=group.round)


def _beats(group: LedGroup, name: str) -> int:
    member = group.members.get(name)
    return -1 if member is None else member.beats


class Vigil:
    """The watch over one group by one gateway."""

    def __init__(self) -> None:
        self._beats: dict[str, tuple[int, float]] = {}  # the count, and since when it or a request was seen
        self._round: tuple[int, float] = (-1, 0.0)
        self._looked_ms: float | None = None

    def wake(self, asked_ms: float, session_ms: float) -> None:
        """A look begins. After a long gap nothing counts that was seen before."""
        if self._looked_ms is not None and asked_ms - self._looked_ms > session_ms / _GAP_PART:
            self._looked_ms = None
            self._beats.clear()
            self._round = (-1, 0.0)

    def look(self, group: LedGroup, asked_ms: float, now_ms: float) -> None:
        """A read or a write began at `asked_ms`, and has just shown this."""
        self.wake(asked_ms, group.session_ms)
        is_new = self._looked_ms is None or now_ms - asked_ms > group.session_ms / _GAP_PART
        self._looked_ms = now_ms
        for name, member in group.members.items():
            seen = self._beats.get(name)
            if is_new or seen is None or seen[0] != member.beats:
                self._beats[name] = (member.beats, now_ms)
        for name in [*self._beats]:
            if name not in group.members:
                del self._beats[name]
        if is_new or self._round[0] != group.round:
            self._round = (group.round, now_ms)

    def heard(self, member_id: str, now_ms: float) -> None:
        """A request of the member has come, or still waits here."""
        if member_id in self._beats:
            self._beats[member_id] = (self._beats[member_id][0], now_ms)

    def ended(self, group: LedGroup, asked_ms: float) -> set[str]:
        """The members whose sessions had ended when the read or write that shows this group began."""
        return {
            name
            for name, member in group.members.items()
            if name in self._beats
            and self._beats[name][0] == member.beats
            and asked_ms - self._beats[name][1] >= member.session_ms
        }

    def is_overdue(self, group: LedGroup, asked_ms: float) -> bool:
        """True if members are waited for, and were so for the whole rebalance time-out when the read began."""
        is_waiting = group.phase in (Phase.JOINING, Phase.SYNCING)
        return is_waiting and self._round[0] == group.round and asked_ms - self._round[1] >= group.rebalance_ms
