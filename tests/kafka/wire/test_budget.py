import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock_core.limits import BATCH_BYTES_DEFAULT_MAX, KAFKA_SMALL_BYTES_MAX, KAFKA_STALL_MS_MAX
from penstock_kafka.dispatch.api import Peer
from penstock_kafka.wire import budget as budgets
from penstock_kafka.wire.budget import ByteBudget, Hold

MAX = 64 * KAFKA_SMALL_BYTES_MAX
LARGE = MAX // 4
NOW_MS = 1_000_000


class Desk:
    """A budget, the clock that it looks at, and the connections that it has cut."""

    def __init__(self) -> None:
        self.budget = ByteBudget(MAX)
        self.cut: list[int] = []
        self._number = 0

    def peer(self, *, user: str | None = None, stopped_ms: int = 0) -> Peer:
        """Another client, which has not moved for that long."""
        self._number += 1
        number = self._number
        return Peer(
            number=number,
            address="",
            principal=user,
            sends_since_ms=NOW_MS - stopped_ms if stopped_ms else None,
            cut=lambda: self.cut.append(number),
        )

    async def hold(self, size: int, peer: Peer | None = None) -> Hold:
        """The hold of a client, as soon as it has it."""
        hold = self.budget.open(peer or self.peer())
        await hold.take(size)
        return hold

    async def fill(self, count: int = 4) -> list[Hold]:
        """Quarters of the budget, by clients without a user; four fill it."""
        return [await self.hold(LARGE) for _ in range(count)]

    async def goes_beyond(self) -> Hold:
        """The one that needs no room: the next one waits."""
        return await self.hold(LARGE)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Desk], Awaitable[None]]], None]:
    """Runs a test at a clock that does not move."""
    monkeypatch.setattr(budgets, "monotonic_ms", lambda: NOW_MS)

    async def with_desk(test: Callable[[Desk], Awaitable[None]]) -> None:
        await test(Desk())

    return lambda test: asyncio.run(with_desk(test))


Run = Callable[[Callable[[Desk], Awaitable[None]]], None]


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_large_takers_wait_in_order_until_there_is_room(run: Run) -> None:
    async def test(desk: Desk) -> None:
        holds = [*await desk.fill(), await desk.goes_beyond()]
        second, third = (asyncio.ensure_future(desk.hold(size)) for size in (LARGE, LARGE // 2))
        await _settled()
        assert not second.done()
        assert not third.done(), "a smaller one does not overtake: a large one would wait for ever"
        holds[0].close()
        holds[1].close()
        await second
        assert not third.done()
        holds[2].close()
        await third
        assert desk.budget.held == MAX - LARGE // 2

    run(test)


def test_small_taker_passes_those_that_wait_when_its_connection_holds_nothing(run: Run) -> None:
    async def test(desk: Desk) -> None:
        await desk.fill()
        await desk.goes_beyond()
        waiting = asyncio.ensure_future(desk.hold(LARGE))
        await _settled()
        client = desk.peer()
        await desk.hold(KAFKA_SMALL_BYTES_MAX, client)
        more = asyncio.ensure_future(desk.hold(1, client))
        await _settled()
        assert not waiting.done()
        assert not more.done()
        for each in (waiting, more):
            each.cancel()

    run(test)


def test_small_takers_wait_when_twice_the_budget_is_held(run: Run) -> None:
    async def test(desk: Desk) -> None:
        (first, *_) = await desk.fill()
        first.resize(2 * MAX)
        beyond = await desk.goes_beyond()
        waiting = asyncio.ensure_future(desk.hold(1))
        await _settled()
        assert not waiting.done()
        first.close()
        beyond.close()
        await waiting

    run(test)


def test_requests_that_came_in_part_do_not_wait_for_each_other(run: Run) -> None:
    async def test(desk: Desk) -> None:
        parts = await desk.fill()
        wanted = [asyncio.ensure_future(each.take(LARGE)) for each in parts]
        for part, taking in zip(parts, wanted, strict=True):
            await taking  # the others wait until this one came whole
            part.close()
        assert desk.budget.held == 0

    run(test)


def test_larger_than_the_budget_goes_alone(run: Run) -> None:
    async def test(desk: Desk) -> None:
        assert (await desk.hold(3 * MAX)).size == 3 * MAX

    run(test)


@pytest.mark.parametrize("user", [None, "orders"])
def test_used_up_share_holds_up_no_other_client(run: Run, user: str | None) -> None:
    async def test(desk: Desk) -> None:
        client = desk.peer(user=user)
        own = [await desk.hold(LARGE, client)]
        if user is not None:
            own.append(await desk.hold(LARGE, desk.peer(user=user)))
            client = desk.peer(user=user)
        beyond = await desk.hold(LARGE, client)
        waiting = asyncio.ensure_future(desk.hold(LARGE // 2, client))
        await _settled()
        assert not waiting.done()
        own.append(await desk.hold(LARGE // 4, desk.peer(user="other")))
        beyond.close()
        await waiting

    run(test)


def test_bytes_are_free_when_a_waiting_taker_is_cancelled(run: Run) -> None:
    async def test(desk: Desk) -> None:
        holds = [*await desk.fill(), await desk.goes_beyond()]
        first, second = (asyncio.ensure_future(desk.hold(size)) for size in (LARGE, LARGE))
        await _settled()
        holds[0].close()
        first.cancel()
        await asyncio.wait({first})
        holds[1].close()
        await second
        for each in (*holds, second.result()):
            each.close()
        assert desk.budget.held == 0

    run(test)


def test_those_behind_a_taker_that_goes_are_served_at_once(run: Run) -> None:
    async def test(desk: Desk) -> None:
        holds = [*await desk.fill(), await desk.goes_beyond()]
        first, second = (asyncio.ensure_future(desk.hold(size)) for size in (LARGE, LARGE // 2))
        await _settled()
        holds[0].close()
        holds[1].resize(LARGE // 2)
        await _settled()
        assert not second.done()
        first.cancel()
        await second

    run(test)


def test_stopped_clients_are_cut_while_another_waits_the_largest_first(run: Run) -> None:
    async def test(desk: Desk) -> None:
        stopped = [desk.peer(stopped_ms=KAFKA_STALL_MS_MAX) for _ in range(4)]
        for size, peer in zip((LARGE, LARGE // 2, LARGE, 1), stopped, strict=True):
            await desk.hold(size, peer)
        await desk.hold(LARGE, desk.peer(stopped_ms=KAFKA_STALL_MS_MAX - 1))
        await desk.goes_beyond()
        await _settled()
        assert desk.cut == [], "no client waits"
        waiting = [asyncio.ensure_future(desk.hold(LARGE)) for _ in range(2)]
        await _settled()
        assert desk.cut == [1, 3, 2, 4]  # the fifth has stopped a moment ago only
        for each in waiting:
            each.cancel()

    run(test)


@pytest.mark.parametrize(
    ("last", "held", "taken"),
    [
        (None, 0, MAX // 4),
        (None, MAX - 1, BATCH_BYTES_DEFAULT_MAX),
        (0, MAX - 1, KAFKA_SMALL_BYTES_MAX),
        (KAFKA_SMALL_BYTES_MAX + 7, MAX - 1, KAFKA_SMALL_BYTES_MAX + 7),
        (0, MAX // 2, MAX // 8),
    ],
)
def test_fetch_takes_what_its_client_had_last_when_room_is_short(
    run: Run, last: int | None, held: int, taken: int
) -> None:
    async def test(desk: Desk) -> None:
        (await desk.hold(0)).resize(held)
        client = desk.peer()
        client.fetched_bytes = last
        hold = desk.budget.open(client)
        assert await hold.take_part(MAX) == taken
        assert await desk.budget.open(desk.peer()).take_part(10) == 10

    run(test)


def test_user_gives_back_what_it_took_before_its_login(run: Run) -> None:
    async def test(desk: Desk) -> None:
        client = desk.peer()
        hold = await desk.hold(LARGE, client)
        client.principal = "orders"
        hold.close()
        assert desk.budget.held == 0
        for _ in range(2):
            await desk.hold(LARGE, desk.peer(user="orders"))
        await desk.goes_beyond()
        assert desk.budget.held == 3 * LARGE

    run(test)


def test_large_requests_that_rest_are_ended_while_others_wait_and_small_ones_stay(run: Run) -> None:
    async def test(desk: Desk) -> None:
        small = await desk.hold(KAFKA_SMALL_BYTES_MAX)
        large = [*await desk.fill(3), await desk.goes_beyond()]
        for each in (small, *large):
            each.rests_since_ms = NOW_MS - KAFKA_STALL_MS_MAX
        large[0].rests_since_ms = NOW_MS - KAFKA_STALL_MS_MAX + 1
        waits = asyncio.ensure_future(desk.hold(LARGE))
        await _settled()
        assert desk.cut == [each.peer.number for each in large[1:]]
        waits.cancel()

    run(test)
