"""What the workloads of share groups draw: settings of groups, and habits of workers."""

from random import Random

from tests.simulation.clients.share_worker import WorkerHabits

BACKOFF_MS_MAX = 4_000


def by_last_digit(value: str) -> str | None:
    """One of three keys, by the last digit of the value; some records have none."""
    digit = int(value[-1])
    return None if digit == 9 else f"k{digit % 3}"


def draw_config(random: Random, dead_topic: str, *, is_filtered: bool = False) -> dict[str, object]:
    """The settings of a share group, sometimes with this dead-letter topic."""
    is_by_key = random.random() < 0.4
    config: dict[str, object] = {
        "lock_ms": random.choice([1_000, 3_000]),
        "retry_backoff_ms_min": random.choice([1, 300]),
        "retry_backoff_ms_max": BACKOFF_MS_MAX,
        "ordering": "key" if is_by_key else "none",
        "in_flight_max": random.choice([3, 20, 500]),
    }
    if is_by_key:
        config["key_batch_max"] = random.choice([1, 3])
    if is_filtered:
        config["filter"] = draw_policy(random)
    if random.random() < 0.7:
        config |= {"dead_letter_topic": dead_topic, "deliveries_max": random.choice([1, 2, 3, 5])}
    return config


def draw_policy(random: Random) -> dict[str, object]:
    """A filter policy over the tag, which is the last digit of the value."""
    return {"tag": random.sample("0123456789", random.choice([2, 6]))}


def draw_habits(random: Random) -> WorkerHabits:
    """Workers that may be slow, die, and be killed by poison records."""
    return WorkerHabits(
        records_max=random.choice([(1,), (2, 5), (10, 20)]),
        work_ms=random.choice([(1.0,), (5.0, 300.0), (10.0, 1_500.0, 6_000.0)]),
        death_rate=random.choice([0.0, 0.05, 0.2]),
        doubled_rate=random.choice([0.0, 0.0, 0.2, 0.5]),
        poison=random.choice([None, "7"]),
        bad=random.choice([None, "3"]),
    )


def repeating_habits(random: Random) -> WorkerHabits:
    """Quick workers on a network that brings most calls twice."""
    return WorkerHabits(
        records_max=random.choice([(1,), (2,)]),
        work_ms=(1.0,),
        death_rate=0.0,
        doubled_rate=0.6,
        poison=None,
        bad=None,
        acknowledges_at_once=1.0,
    )
