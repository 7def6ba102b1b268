import asyncio

from penstock_kafka.wire.budget import ByteBudget


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_taker_waits_until_bytes_are_given_back() -> None:
    async def run() -> None:
        budget = ByteBudget(10)
        await budget.take(8)
        second, third = asyncio.ensure_future(budget.take(5)), asyncio.ensure_future(budget.take(1))
        await _settled()
        assert not second.done()
        assert not third.done(), "a small one does not overtake: a large one would wait for ever"
        budget.give_back(8)
        await asyncio.gather(second, third)
        assert budget.held == 6

    asyncio.run(run())


def test_larger_than_the_budget_goes_alone() -> None:
    async def run() -> None:
        budget = ByteBudget(10)
        await budget.take(25)
        assert budget.held == 25

    asyncio.run(run())


def test_bytes_are_free_when_a_waiting_taker_is_cancelled() -> None:
    async def run() -> None:
        budget = ByteBudget(10)
        await budget.take(10)
        waiting = asyncio.ensure_future(budget.take(10))
        await _settled()
        waiting.cancel()
        await asyncio.wait({waiting})
        budget.give_back(10)
        assert budget.held == 0
        await budget.take(10)

    asyncio.run(run())
