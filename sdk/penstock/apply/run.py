"""Reads a stage, and carries out the changes of a plan, by the admin client: at most `APPLY_CALLS_MAX` calls at a time.

```
quotas, topics ▶ rules ▶ groups, subscriptions, schedules and so on ▶ deletions of these ▶ the rest ▶ rules
```
A step begins when the one before has ended without an error. So a run that failed has done whole steps, and a part of
one: a further run goes on from there. Rules go last, because one of them may allow the run itself.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from penstock.admin.admin import Admin
from penstock.admin.caller_rights import rules_of
from penstock.apply.plan import RULE, ChangeAction, StageChange
from penstock.apply.settings import SCHEDULE_DEFAULTS
from penstock.apply.stage import Noun, Settings, Stage
from penstock.apply.stage_file import RETRY
from penstock.model.access import AccessRule
from penstock_core.errors import PenstockError
from penstock_core.limits import ACL_CHANGES_MAX, APPLY_CALLS_MAX, UNLIMITED

_SHARED: Mapping[bool, Settings] = {False: {}, True: {"shared": True}}
_WAYS = (Noun.GROUP, Noun.SHARE_GROUP, Noun.SUBSCRIPTION, Noun.SCHEDULE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOutcome:
    """The changes that were made, and the errors of those that were not. Changes of later steps are in neither."""

    made: tuple[StageChange, ...]
    failed: tuple[tuple[StageChange, PenstockError], ...]


def read_stage(admin: Admin, nouns: Collection[Noun], *, has_rules: bool) -> Stage:
    """What the stage has of these nouns, and with `has_rules` its rules: the pages of each list, all lists at once.

    It is what the caller may describe.
    """
    with ThreadPoolExecutor(APPLY_CALLS_MAX) as pool:
        things = {noun: pool.submit(_LISTS[noun], admin) for noun in nouns}
        rules = pool.submit(rules_of, admin) if has_rules else None
        return Stage(
            things={noun: found.result() for noun, found in things.items()},
            rules=None if rules is None else rules.result(),
        )


def _topics(admin: Admin) -> dict[str, Settings]:
    return {each.name: {**each.config, "partitions": each.writable_partitions} for each in admin.list_topics()}


def _groups(admin: Admin) -> dict[str, Settings]:
    return {each.group: each.config for each in admin.list_groups()}


def _share_groups(admin: Admin) -> dict[str, Settings]:
    return {each.group: {"topics": list(each.topics), **each.config} for each in admin.list_share_groups()}


def _subscriptions(admin: Admin) -> dict[str, Settings]:
    found: dict[str, Settings] = {}
    for each in admin.list_subscriptions():
        config = dict(each.config)
        retry = dict(config.pop("retry"))
        if retry.get("age_ms_max") == UNLIMITED:
            retry["age_ms_max"] = None
        found[each.name] = {"topics": list(each.topics), "target": dict(each.target), **config, **retry}
    return found


def _schedules(admin: Admin) -> dict[str, Settings]:
    return {
        each.name: {
            "cron": each.cron,
            "time_zone": each.time_zone,
            "topic": each.topic,
            "record": dict(each.record),
            "enabled": each.enabled,
        }
        for each in admin.list_schedules()
    }


def _quotas(admin: Admin) -> dict[str, Settings]:
    return {f"{each.subject} {each.name}": {**each.limits, **_SHARED[each.shared]} for each in admin.list_quotas()}


_LISTS: Mapping[Noun, Callable[[Admin], dict[str, Settings]]] = {
    Noun.TOPIC: _topics,
    Noun.GROUP: _groups,
    Noun.SHARE_GROUP: _share_groups,
    Noun.SUBSCRIPTION: _subscriptions,
    Noun.SCHEDULE: _schedules,
    Noun.QUOTA: _quotas,
}


def apply_changes(admin: Admin, changes: Sequence[StageChange]) -> ApplyOutcome:
    """Carries out the changes, step by step. It ends after the step in which one fails."""
    made: list[StageChange] = []
    failed: list[tuple[StageChange, PenstockError]] = []
    with ThreadPoolExecutor(APPLY_CALLS_MAX) as pool:
        for step in _steps(changes):
            jobs = [pool.submit(_carry_out, admin, some) for some in step]
            for some, job in zip(step, jobs, strict=True):
                error = job.result()
                if error is None:
                    made += some
                else:
                    failed += [(each, error) for each in some]
            if failed:
                break
    return ApplyOutcome(made=tuple(made), failed=tuple(failed))


def _steps(changes: Sequence[StageChange]) -> Iterator[list[list[StageChange]]]:
    """The steps, each a list of jobs. A job is one change, or as many rules as one call takes."""
    puts = [each for each in changes if each.action is not ChangeAction.DELETE]
    deletions = [each for each in changes if each.action is ChangeAction.DELETE]
    yield [[each] for each in puts if each.what in (Noun.TOPIC, Noun.QUOTA)]
    yield from _of_rules(puts)
    yield [[each] for each in puts if each.what in _WAYS]
    yield [[each] for each in deletions if each.what in _WAYS]
    yield [[each] for each in deletions if each.what in (Noun.TOPIC, Noun.QUOTA)]
    yield from _of_rules(deletions)


def _of_rules(changes: Sequence[StageChange]) -> Iterator[list[list[StageChange]]]:
    """One call after another: all rules are one item, whose changes at once would hold each other up."""
    rules = [each for each in changes if each.what == RULE]
    for at in range(0, len(rules), ACL_CHANGES_MAX):
        yield [rules[at : at + ACL_CHANGES_MAX]]


def _carry_out(admin: Admin, changes: Sequence[StageChange]) -> PenstockError | None:
    """The error of the call, None if it was made."""
    try:
        rules = [AccessRule(**each.rule.to_json()) for each in changes if each.rule is not None]
        if rules:
            is_deletion = changes[0].action is ChangeAction.DELETE
            admin.change_acls(remove=rules) if is_deletion else admin.change_acls(add=rules)
        else:
            [change] = changes
            _CALLS[Noun(change.what), change.action is ChangeAction.DELETE](admin, change)
    except PenstockError as error:
        return error
    return None


def _put_topic(admin: Admin, change: StageChange) -> None:
    config = {name: value for name, value in change.after.items() if name != "partitions"}
    if change.action is ChangeAction.CREATE:
        admin.create_topic(change.name, change.after["partitions"], config, exist_ok=True)
        return
    if config:
        admin.alter_topic(change.name, config)
    if "partitions" in change.after:
        admin.set_partitions(change.name, change.after["partitions"])


def _put_group(admin: Admin, change: StageChange) -> None:
    admin.alter_group(change.name, change.after)


def _put_share_group(admin: Admin, change: StageChange) -> None:
    config = {name: value for name, value in change.after.items() if name != "topics"}
    admin.create_share_group(change.name, change.settings["topics"], config)


def _put_subscription(admin: Admin, change: StageChange) -> None:
    """Of one that is there, it sends what changes: a target is tried out each time it is sent."""
    is_new = change.action is ChangeAction.CREATE
    config: dict[str, Any] = {name: each for name, each in change.after.items() if name not in ("topics", "target")}
    retry = {name: config.pop(name) for name in RETRY if name in config}
    if retry:
        config["retry"] = retry
    target = change.settings["target"] if is_new or "target" in change.after else None
    admin.put_subscription(change.name, change.settings["topics"], target, config)


def _put_schedule(admin: Admin, change: StageChange) -> None:
    """It names the topic always: so the schedule is bound to the one that has the name now."""
    new = change.settings
    sent = {each: new[each] for each in ("cron", "record") if each in change.after}
    settings = {each: new[each] for each in ("time_zone", "enabled") if each in change.after}
    if change.action is ChangeAction.CREATE:
        sent, settings = {"cron": new["cron"], "record": new["record"]}, {each: new[each] for each in SCHEDULE_DEFAULTS}
    admin.put_schedule(change.name, topic=new["topic"], **sent, **settings)


def _put_quota(admin: Admin, change: StageChange) -> None:
    subject, _, name = change.name.partition(" ")
    limits = {limit: value for limit, value in change.settings.items() if limit != "shared"}
    admin.set_quota(subject, name, limits, shared="shared" in change.settings)


def _delete_quota(admin: Admin, change: StageChange) -> None:
    subject, _, name = change.name.partition(" ")
    admin.delete_quota(subject, name)


_CALLS: Mapping[tuple[Noun, bool], Callable[[Admin, StageChange], object]] = {
    (Noun.TOPIC, False): _put_topic,
    (Noun.GROUP, False): _put_group,
    (Noun.SHARE_GROUP, False): _put_share_group,
    (Noun.SUBSCRIPTION, False): _put_subscription,
    (Noun.SCHEDULE, False): _put_schedule,
    (Noun.QUOTA, False): _put_quota,
    (Noun.TOPIC, True): lambda admin, change: admin.delete_topic(change.name),
    (Noun.SHARE_GROUP, True): lambda admin, change: admin.delete_share_group(change.name),
    (Noun.SUBSCRIPTION, True): lambda admin, change: admin.delete_subscription(change.name),
    (Noun.SCHEDULE, True): lambda admin, change: admin.delete_schedule(change.name),
    (Noun.QUOTA, True): _delete_quota,
}
