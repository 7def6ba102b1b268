"""Principals create, widen and delete topics, groups, share groups and subscriptions, under counts (docs/adr/0053).

Clients of one principal use the same names. Answers are lost, functions die between a claim and its resource, calls
come again, and time goes by until claims are old. No principal ever has more than its counts. Once faults are over, it
can have as much as they say, so no claim of a thing that is gone stays.

Each of these groups has one client, which leaves it alone before it deletes it, and one client widens topics: a group
has no id (docs/adr/0053), and of two alterations at once the claim may count one.

Racers make a group and delete it, all at once. It may exceed the count. But a group that is there in the end is listed
and claimed, if no call for it has failed.
"""

from collections.abc import Callable
from typing import Any

from penstock_core.acls.principal import Principal
from penstock_core.acls.rule_set import Access, PrincipalRules
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import GroupName
from penstock_core.limits import CLAIM_GRACE_MS
from penstock_core.quotas.quota import ClaimKind, Count, parse_quota
from penstock_service.groups.claim_group import list_group
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.groups.delete_group import delete_group, unlist_group
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.push.admin.pause_subscription import delete_subscription
from penstock_service.push.admin.put_subscription import SubscriptionWish, put_subscription
from penstock_service.quotas.claim_resource import forget_claim
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.share.admin.reset_share_group import delete_share_group
from penstock_service.topics.alter_topic import alter_topic, delete_topic
from penstock_service.topics.create_topic import create_topic
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_PRINCIPALS = ("shop", "ledger")
_RACER = "jwt:i#racer"
_RACED = tuple(GroupName(f"raced-{number}") for number in range(20))
_RACE_MS = 500.0
_SOURCE, _MIRROR = "claimed-from", "claimed-to"
_MAKES = {("topics", "create"), ("topics", "replace"), ("memberships", "register")}
_MAKES |= {("share", "change_group"), ("push", "change_subscription")}
_QUIET_MS = 60_000.0  # no call of a client takes effect so long after its end
_LOOKS_MAX = 20

Act = Callable[[Instance], object]


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    limits = {"topics_max": 3, "groups_max": random.choice([2, 4]), "subscriptions_max": 1}
    if random.random() < 0.5:
        limits["partitions_max"] = 6
    for name in (_SOURCE, _MIRROR):
        simulation.topic(name, partitions=1)
    for principal in _PRINCIPALS:
        simulation.stores.quotas.put(parse_quota("principal", f"jwt:i#{principal}", limits))
    counts = {Count(name): most for name, most in limits.items()}

    def observe(label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if (label, method) in _MAKES and not isinstance(outcome, PenstockError):
            for principal in _PRINCIPALS:
                _expect_within(simulation, principal, counts)

    simulation.storage.observers.append(observe)
    for principal in _PRINCIPALS:
        deleting: set[str] = set()
        for number in range(random.choice([2, 3])):
            client = _Client(simulation, principal, number, deleting)
            simulation.work(f"{principal}{number}", client.run)
    racers = _Racers(simulation)
    for number in range(4):
        simulation.work(f"racer{number}", lambda number=number: racers.run(is_deleting=number % 2 == 0))  # type: ignore[misc]
    simulation.final_checks.append(racers.check)
    simulation.final_checks.append(lambda: _check_end(simulation, counts))


class _Racers:
    """Clients of which two make each group, and two delete it."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._unsure: set[GroupName] = set()

    def run(self, *, is_deleting: bool) -> None:
        scheduler = self._simulation.scheduler
        for number, group in enumerate(_RACED):
            scheduler.pause(max(0.0, number * _RACE_MS - scheduler.now_ms) + scheduler.random.uniform(0.0, 50.0))
            self._act(group, is_deletion=is_deleting)

    def _act(self, group: GroupName, *, is_deletion: bool) -> None:
        entry = CommitEntry(topic=_SOURCE, partition=0, offset=0)

        def commit(to: Instance) -> None:
            commit_offsets(to, group, [entry], principal=_RACER).all_ok()

        try:
            self._simulation.call((lambda to: delete_group(to, group)) if is_deletion else commit, is_read=False)
        except PenstockError as error:
            if error.code.is_retriable:
                self._unsure.add(group)

    def check(self) -> None:
        """The bare stores have each group on the list, and its claim."""
        stores = self._simulation.stores
        listed = set(stores.memberships.registered("", 100))
        claimed = {each.name for each in stores.quotas.claims(_RACER)}
        for group in _RACED:
            if stores.groups.leases(group) and group not in self._unsure:
                self._simulation.count("raced group")
                expect(group in listed, f"{group} is there and not listed")
                expect(group in claimed, f"{group} is there and not claimed")


class _Client:
    """One client of a principal. The first one widens topics. `deleting` are the topics that its clients delete now."""

    def __init__(self, simulation: Simulation, principal: str, number: int, deleting: set[str]) -> None:
        self._simulation = simulation
        self._random = simulation.scheduler.random
        self._number = number
        self._deleting = deleting
        self._prefix = principal
        self._name = f"jwt:i#{principal}"
        self._access = Access(
            principal=Principal(name=self._name, digest=principal), rules=PrincipalRules((), allows_by_default=True)
        )

    def run(self) -> None:
        acts = [self._create, self._create, self._delete, self._share, self._unshare, self._subscribe]
        acts += [self._unsubscribe, self._join, self._leave, self._wait]
        if self._number == 0:
            acts += [self._widen, self._widen]
        for _ in range(self._random.choice([8, 16])):
            self._simulation.scheduler.pause(self._random.uniform(0.0, 200.0))
            self._random.choice(acts)()

    def _create(self) -> None:
        partitions = self._random.choice([1, 1, 2])
        is_anew = self._deleting and self._random.random() < 0.7
        name = self._random.choice(sorted(self._deleting)) if is_anew else self._topic()
        self._try(lambda to: create_topic(to, name, partitions, {}, self._name))

    def _delete(self) -> None:
        name = self._topic()
        self._deleting.add(name)
        self._try(lambda to: forget_claim(to, self._name, ClaimKind.TOPIC, name, delete_topic(to, name)))
        self._deleting.discard(name)

    def _widen(self) -> None:
        name, partitions = self._topic(), self._random.choice([2, 3, 6])
        self._simulation.scheduler.pause(_QUIET_MS)
        self._try(lambda to: alter_topic(to, name, partitions, {}, self._name))
        self._simulation.scheduler.pause(_QUIET_MS)

    def _share(self) -> None:
        name = f"{self._prefix}-w{self._random.randrange(3)}"
        self._try(lambda to: put_share_group(to, name, [_SOURCE], {}, self._access))

    def _unshare(self) -> None:
        name = f"{self._prefix}-w{self._random.randrange(3)}"
        self._try(lambda to: forget_claim(to, self._name, ClaimKind.SHARE_GROUP, name, delete_share_group(to, name)))

    def _subscribe(self) -> None:
        name = f"{self._prefix}-s{self._random.randrange(2)}"
        wish = SubscriptionWish(topics=[_SOURCE], target={"topic": _MIRROR}, settings={})
        self._try(lambda to: put_subscription(to, name, wish, self._access))

    def _unsubscribe(self) -> None:
        name = f"{self._prefix}-s{self._random.randrange(2)}"
        self._try(lambda to: forget_claim(to, self._name, ClaimKind.SUBSCRIPTION, name, delete_subscription(to, name)))

    def _join(self) -> None:
        group = self._group()

        self._try(lambda to: list_group(to, UpdateWindow.open(to.clock), self._name, group))

    def _leave(self) -> None:
        group = self._group()

        self._simulation.scheduler.pause(_QUIET_MS)
        self._try(lambda to: unlist_group(to, group))
        self._simulation.scheduler.pause(_QUIET_MS)

    def _wait(self) -> None:
        """Until claims are old, or until a call of another client is about to end."""
        self._simulation.scheduler.pause(self._random.choice([100.0, 5_000.0, CLAIM_GRACE_MS + 1_000.0]))

    def _topic(self) -> str:
        return f"{self._prefix}-t{self._random.randrange(5)}"

    def _group(self) -> GroupName:
        return GroupName(f"{self._prefix}-g{self._number}-{self._random.randrange(2)}")

    def _try(self, act: Act) -> None:
        """Call once, or again after an answer that was lost."""
        for _ in range(self._random.choice([1, 1, 3])):
            try:
                self._simulation.call(act, is_read=False)
            except PenstockError as error:
                if error.code is ErrorCode.QUOTA_EXCEEDED:
                    self._simulation.count("quota exceeded")
                if not error.code.is_retriable:
                    return
            else:
                return


def _owned(simulation: Simulation, principal: str) -> dict[Count, int]:
    """What the principal has, by the bare stores."""
    stores, prefix = simulation.stores, f"{principal}-"
    topics = [each for each in stores.topics.list() if each.name.startswith(prefix)]
    groups = [each for each in stores.memberships.registered("", 100) if each.startswith(prefix)]
    shared = [each for each in stores.share.list_groups("", 100) if each.name.startswith(prefix)]
    subscriptions = [each for each in stores.push.list_subscriptions("", 100) if each.name.startswith(prefix)]
    return {
        Count.TOPICS: len(topics),
        Count.PARTITIONS: sum(each.head_count for each in topics),
        Count.GROUPS: len(groups) + len(shared),
        Count.SUBSCRIPTIONS: len(subscriptions),
    }


def _expect_within(simulation: Simulation, principal: str, counts: dict[Count, int]) -> None:
    owned = _owned(simulation, principal)
    for count, most in counts.items():
        expect(owned[count] <= most, f"{principal} has {owned[count]} of {count}={most}")


def _check_end(simulation: Simulation, counts: dict[Count, int]) -> None:
    """Each principal can fill its counts, however its calls have ended, and not exceed them."""
    simulation.jump(CLAIM_GRACE_MS + _QUIET_MS)
    for principal in _PRINCIPALS:
        _fill(simulation.undisturbed(), principal)
        owned = _owned(simulation, principal)
        for count in (Count.GROUPS, *({Count.TOPICS} if Count.PARTITIONS not in counts else ())):
            expect(owned[count] == counts[count], f"{principal} can have {owned[count]} of {count}={counts[count]}")
        _expect_within(simulation, principal, counts)


def _fill(to: Instance, principal: str) -> None:
    """Create until the counts refuse it. A refusal looks at claims of its own kind, so groups go twice in turns."""
    name = f"jwt:i#{principal}"
    access = Access(principal=Principal(name=name, digest=""), rules=PrincipalRules((), allows_by_default=True))

    def join(group: str) -> None:
        list_group(to, UpdateWindow.open(to.clock), name, GroupName(group))

    def share(group: str) -> None:
        put_share_group(to, group, [_SOURCE], {}, access)

    for turn, make in enumerate((join, share, join, share, lambda topic: create_topic(to, topic, 1, {}, name))):
        for number in range(_LOOKS_MAX):
            if not _is_done(make, f"{principal}-x{turn}-{number}"):
                break


def _is_done(make: Callable[[str], object], name: str) -> bool:
    try:
        make(name)
    except PenstockError as error:
        expect(error.code is ErrorCode.QUOTA_EXCEEDED, f"a creation fails once faults are over: {error}")
        return False
    return True
