"""Real Celery workers on `penstock dev`'s server: each task takes effect, and what kills and shutdowns do to that."""

from collections import Counter
from pathlib import Path

import pytest

from tests.kombu.worker import Workers
from tests.support.deadlines import until

_LOCK_MS = 2_000


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_tasks_retries_and_etas_run_once_when_no_worker_dies(workers: Workers, pool: str) -> None:
    workers.start("--pool", pool, "-c", "2", lock_ms=_LOCK_MS)
    plain = {workers.send("effect", f"e{number}") for number in range(20)}
    later = workers.send("effect", "later", countdown=1.5)
    retried = {workers.send("flaky", f"f{number}", 2, 0.5) for number in range(3)}

    ids = {*plain, *retried, later}
    workers.until_seen(ids)
    workers.until_finished()

    assert workers.seen("effect") == Counter(ids)
    assert workers.seen("try") == dict.fromkeys(retried, 2)


@pytest.mark.slow
def test_tasks_in_hand_of_a_killed_worker_run_in_another(workers: Workers, tmp_path: Path) -> None:
    """None of them is acknowledged, although they were delivered longer ago than acknowledgements linger."""
    first = workers.start("-c", "2", lock_ms=_LOCK_MS)
    gate = tmp_path / "gate"
    ids = {workers.send("slow", f"s{number}", str(gate)) for number in range(8)}  # as many as it prefetches
    until(lambda: len(workers.seen("begin")) == 2 and _in_flight(workers) == 8)
    begun = workers.seen("begin")
    renewed_ms = _locked_until_ms(workers) + _LOCK_MS
    until(lambda: _locked_until_ms(workers) > renewed_ms)
    assert workers.unfinished() == len(ids)

    first.kill()
    workers.start("-c", "2", lock_ms=_LOCK_MS)
    gate.touch()
    workers.until_seen(ids)
    workers.until_finished()

    assert workers.seen("effect") == Counter(ids)
    assert workers.seen("begin") == Counter(ids) + begun


@pytest.mark.minutes
def test_no_task_is_lost_when_workers_are_killed_again_and_again(workers: Workers) -> None:
    """Two workers; the older one is killed while it has tasks, and a new one starts. A task may begin again then."""
    tasks, kills = 300, 4
    options = {"lock_ms": _LOCK_MS, "PAUSE": 0.3}  # what is prefetched takes longer than acknowledgements linger
    alive = [workers.start("-c", "2", **options) for _ in range(2)]
    ids = {workers.send("effect", f"e{number}") for number in range(tasks)}
    ids |= {workers.send("flaky", f"f{number}", 1, 0.5) for number in range(tasks // 10)}
    for kill in range(1, kills + 1):
        workers.until_effects(kill * tasks // (kills + 2))
        alive.pop(0).kill()
        alive.append(workers.start("-c", "2", **options))

    workers.until_seen(ids)
    workers.until_finished()

    effects = workers.seen("effect")
    assert effects.keys() == ids
    in_hand = 2 * 4 + 2  # of a killed worker: what it had prefetched, and one more for each child that retries
    assert sum(effects.values()) - len(ids) <= kills * in_hand
    assert workers.admin.describe_dead_letters("celery.dead").records == 0


@pytest.mark.slow
def test_task_that_outlasts_its_lock_runs_once(workers: Workers, tmp_path: Path) -> None:
    for _ in range(2):
        workers.start("--pool", "threads", "-c", "1", lock_ms=1_000)
    gate = tmp_path / "gate"
    sent = workers.send("slow", "s", str(gate))
    workers.until_seen({sent}, "begin")

    first_ms = _locked_until_ms(workers)
    until(lambda: _locked_until_ms(workers) > first_ms + 2_500)  # two and a half locks later it is still locked
    gate.touch()
    workers.until_finished()

    assert workers.seen("begin") == workers.seen("effect") == {sent: 1}


def _locked_until_ms(workers: Workers) -> int:
    return max((each.locked_until_ms for each in workers.admin.describe_share_group("celery").holders), default=0)


@pytest.mark.slow
def test_warm_shutdown_ends_what_is_in_hand_and_gives_back_the_rest_at_once(workers: Workers, tmp_path: Path) -> None:
    first = workers.start("-c", "1")
    gate = tmp_path / "gate"
    ids = [workers.send("slow", f"s{number}", str(gate)) for number in range(8)]
    until(lambda: len(workers.seen("begin")) == 1)
    until(lambda: _in_flight(workers) == 4)  # one for the process, times the multiplier

    first.process.terminate()
    until(lambda: "Warm shutdown" in first.log(), shown=first.log)
    gate.touch()
    assert first.process.wait() == 0, first.log()
    assert _in_flight(workers) == 0, "the lock of 30 s need not end"
    assert workers.unfinished() + len(workers.seen("effect")) == len(ids)

    workers.start("-c", "1")
    workers.until_finished()
    assert workers.seen("begin") == workers.seen("effect") == Counter(ids)


def _in_flight(workers: Workers) -> int:
    return sum(each.in_flight for each in workers.admin.describe_share_group("celery").partitions)


@pytest.mark.minutes
def test_child_that_is_killed_leaves_its_task_to_another(workers: Workers, tmp_path: Path) -> None:
    worker = workers.start("-c", "1")
    sent = workers.send("die_once", str(tmp_path / "died"))
    workers.until_seen({sent})
    workers.until_finished()
    assert workers.seen("begin") == {sent: 2}, worker.log()
