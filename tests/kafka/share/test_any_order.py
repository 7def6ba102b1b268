"""Members, gateways and late requests in any order: locks exclude, acceptances stay, and no record is lost."""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from penstock.testing import MemoryPenstock, MemoryTransport
from penstock_service.adapters.memory.service import memory_instance
from tests.kafka.groups.desk import run
from tests.kafka.share.desk import ACCEPT, REJECT, RELEASE, RENEW, Got, ShareDesk, ShareMemberOf, member_of
from tests.support.service import SteppedClock

PARTITIONS = 2
RECORDS = 10  # of each partition
STEPS = 80
LOCK_MS = 10_000
STARTS_ANEW = ("share_session_not_found", "invalid_share_session_epoch")
STEPS_OF = ("fetch",) * 4 + ("ack",) * 3 + ("time",) * 2 + ("late", "renew", "lose", "end", "move", "die", "vanish")

Place = tuple[int, int]
Claims = dict[int, list[tuple[int, int, list[int]]]]


@dataclass(slots=True, kw_only=True, eq=False)
class _Member:
    client: ShareMemberOf
    gateway: int
    held: set[Place] = field(default_factory=set)
    sent: list[Claims] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lock:
    """A record in a member's hands, as the test knows it: until `ends_ms` no other member may get it."""

    member: _Member
    ends_ms: float


class _World:
    def __init__(self, service: MemoryPenstock, clock: SteppedClock, seed: int) -> None:
        self.chance = random.Random(seed)
        self.service, self.clock = service, clock
        self.gateways = [ShareDesk(service), ShareDesk(service)]
        self.born = 0
        self.members = [self.new_member() for _ in range(3)]
        self.locks: dict[Place, _Lock] = {}
        self.handed_out: Counter[Place] = Counter()
        self.finished: set[Place] = set()
        self.unclear: set[Place] = set()  # finished together with a record of another member: the partition was refused

    def new_member(self) -> _Member:
        self.born += 1
        gateway = self.born % 2
        return _Member(client=member_of(self.gateways[gateway], self.service, f"m{self.born}"), gateway=gateway)

    async def step(self) -> None:
        member = self.chance.choice(self.members)
        match self.chance.choice(STEPS_OF):
            case "fetch":
                await self.fetch(member, self.some(member))
            case "ack":
                await self.acknowledge(member, self.some(member))
            case "late" if member.sent:  # a repeat, perhaps of records that another member has by now
                await self.acknowledge(member, self.chance.choice(member.sent))
            case "renew" if member.held:
                await self.acknowledge(member, _claims(member.held, [RENEW]), is_renew_ack=True)
            case "lose":
                await self.fetch(member, {}, is_lost=True)
            case "end":
                await self.end(member)
            case "move":
                member.gateway = 1 - member.gateway
                member.client.desk = self.gateways[member.gateway]
            case "die":
                await self.kill(self.chance.randrange(2))
            case "vanish":
                self.members.remove(member)
                self.members.append(self.new_member())
            case "time":
                self.clock.time_ms += self.chance.choice([500, 3_000, LOCK_MS + 1])
        for desk in self.gateways:
            await desk.context_is_idle()

    async def fetch(self, member: _Member, claims: Claims, *, is_lost: bool = False) -> int:
        """Fetch. A client whose answer is lost begins a new session, and knows nothing of the records."""
        wanted = claims if member.client.epoch else {}
        found = await member.client.fetch(wanted, max_records=self.chance.choice([1, 3, 100]))
        if self.must_start_anew(member):
            return 0
        codes = member.client.verdicts()
        self.settled(member, wanted, [partition for partition in wanted if codes[partition] == 0])
        for record in found:
            self.hand_out(member, record, is_lost=is_lost)
        if is_lost:
            member.client.epoch = 0
        return len(found)

    def hand_out(self, member: _Member, record: Got, *, is_lost: bool) -> None:
        place = (record.partition, record.offset)
        lock = self.locks.get(place)
        assert record.value == f"{record.partition}-{record.offset}"
        assert place not in self.finished, f"{place} is finished, and came again"
        assert lock is None or lock.ends_ms <= self.clock.time_ms, (
            f"{place} is locked by {lock.member.client.member_id}"
        )
        self.handed_out[place] += 1
        assert 1 <= record.deliveries <= self.handed_out[place], (place, record)
        self.locks[place] = _Lock(member=member, ends_ms=self.clock.time_ms + LOCK_MS)
        if not is_lost:
            member.held.add(place)

    async def acknowledge(self, member: _Member, claims: Claims, **fields: object) -> None:
        if not claims or not member.client.epoch:
            return
        verdicts = await member.client.acknowledge(claims, **fields)
        if not self.must_start_anew(member):
            self.settled(member, claims, [each for each, code in verdicts.items() if code == "none"])

    async def end(self, member: _Member) -> None:
        """End the session: all that the gateway knows of goes back."""
        if member.client.epoch:
            member.client.epoch = -1
            await member.client.acknowledge({})
            if member.client.answer["error_code"].name == "none":
                self.locks = {place: lock for place, lock in self.locks.items() if lock.member is not member}
            member.client.epoch = 0
            member.held.clear()

    async def kill(self, gateway: int) -> None:
        """The gateway is gone with all that it knew, and another one takes its address."""
        await self.gateways[gateway].close()
        self.gateways[gateway] = ShareDesk(self.service)
        for member in self.members:
            member.client.desk = self.gateways[member.gateway]

    def must_start_anew(self, member: _Member) -> bool:
        code = str(member.client.answer["error_code"].name)
        if code != "none":
            assert code in STARTS_ANEW, code
            member.client.epoch = 0
        return code != "none"

    def some(self, member: _Member) -> Claims:
        if self.chance.random() < 0.3:
            return {}
        chosen = [each for each in sorted(member.held) if self.chance.random() < 0.7]
        return _claims(chosen, [self.chance.choice([ACCEPT, ACCEPT, RELEASE, REJECT])])

    def settled(self, member: _Member, claims: Claims, taken: Iterable[int]) -> None:
        """The gateway has taken the claims of these partitions. One that was refused is not the member's any more.

        A partition is refused if the member has lost one of the records. The claims on its other records count.
        """
        taken = set(taken)
        if claims:
            member.sent.append(claims)
        for partition, ranges in claims.items():
            for offset, _, [kind] in ranges:
                place = (partition, offset)
                lock = self.locks.get(place)
                is_own = lock is not None and lock.member is member
                if partition in taken and kind == RENEW:
                    assert is_own
                    self.locks[place] = _Lock(member=member, ends_ms=self.clock.time_ms + LOCK_MS)
                    continue
                member.held.discard(place)
                if partition in taken and kind in (ACCEPT, REJECT):
                    assert is_own or lock is None or place in self.finished | self.unclear, (
                        f"{place} is another member's"
                    )
                    self.finished.add(place)
                elif partition not in taken and kind in (ACCEPT, REJECT):
                    self.unclear.add(place)
                if is_own and (partition in taken or kind == RELEASE):
                    del self.locks[place]

    async def settle(self) -> None:
        """One member accepts all that is left, once all locks have run out."""
        member = self.new_member()
        for _ in range(200):
            if len(self.finished | self.unclear) == PARTITIONS * RECORDS:
                return
            self.clock.time_ms += LOCK_MS + 1
            await self.fetch(member, {})
            await self.acknowledge(member, _claims(member.held, [ACCEPT]))
        raise AssertionError(f"{PARTITIONS * RECORDS - len(self.finished | self.unclear)} records never came again")


def _claims(places: Iterable[Place], kinds: list[int]) -> Claims:
    claims: Claims = {}
    for partition, offset in sorted(places):
        claims.setdefault(partition, []).append((offset, offset, kinds))
    return claims


async def _attack(service: MemoryPenstock, clock: SteppedClock, seed: int) -> None:
    world = _World(service, clock, seed)
    for _ in range(STEPS):
        await world.step()
    await world.settle()
    for desk in world.gateways:
        await desk.close()


def _check(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.share.waiting.SDK_WAKE_UP_HOLD_MS", 0)  # there are no wake-ups to wait for
    chance = random.Random(seed)  # the nonces decide the order of partitions, and which acquires tend
    monkeypatch.setattr("penstock_kafka.share.share_calls.new_nonce", lambda: f"{chance.getrandbits(128):032x}")
    clock = SteppedClock()
    with MemoryPenstock() as service:
        service.transport = MemoryTransport(memory_instance(clock=clock))
        service.create_topic("orders", partitions=PARTITIONS)
        config = {"lock_ms": LOCK_MS, "retry_backoff_ms_min": 1, "retry_backoff_ms_max": 10}
        service.create_share_group("workers", "orders", config)
        with service.producer() as producer:
            for partition in range(PARTITIONS):
                for number in range(RECORDS):
                    producer.send("orders", value=f"{partition}-{number}".encode(), partition=partition)
        run(_attack(service, clock, seed))


@pytest.mark.parametrize("seed", range(10))
def test_locks_exclude_acceptances_stay_and_no_record_is_lost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _check(seed, monkeypatch)


@pytest.mark.minutes
@pytest.mark.parametrize("seed", range(10, 150))
def test_locks_exclude_in_more_seeds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _check(seed, monkeypatch)
