"""The check of an upgrade: may this release be deployed, and what would change? It reads, and changes nothing."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.deployed.aws import Aws, aws_code
from penstock.deployed.stack import DeployedStack, references_in, release_in
from penstock.doctor.finding import Finding, Verdict
from penstock.tuning.stage import STAGE, settings_in
from penstock.upgrade.resources import ResourceFate, find_versions, resource_changes
from penstock_core.errors import PenstockError
from penstock_core.formats import ON_DEMAND
from penstock_core.log.inline import InlineBounds
from penstock_core.release import ReleaseFacts, conflicts, format_changes, moved_routes, own_facts
from penstock_core.stack_outputs import FUNCTIONS_OUTPUT
from penstock_core.version import RELEASES, refusal_of_step

KEEP = 3  # versions of each function that `--clean` keeps by default
_SHOWN = 10
# A stage without one of these does not tell so. `_key` compares the keys themselves.
_UNTOLD = ("kms_key", "registry_secret", "reads_glue_schemas")
_TABLES = ("TopicsTable", "LogTable", "GroupsTable")
_DIRECTORY_BUCKET = "AWS::S3Express::DirectoryBucket"
_KEY_NAMES = frozenset({"KMSMasterKeyId", "KMSMasterKeyID", "KmsMasterKeyId", "KmsKeyId"})
_ALARM = "AWS::CloudWatch::Alarm"
_DIRECT_PART = "direct-calls-come-with-this-release"
_EXPIRY_PART = "docs/how-to/upgrade.md#ask-for-what-is-new-after-the-upgrade"
_ITEMS_PART = "small-appends-take-two-deployments"
_MB, _GB = 1_000_000, 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """A stage, and what is to be deployed over it. `template` is None where no app was there to synthesize it."""

    aws: Aws
    stack: DeployedStack
    template: Mapping[str, Any] | None
    why_no_template: str = ""

    @property
    def new(self) -> ReleaseFacts | None:
        """The release that is to be deployed, None if the template tells none.

        Without a template it is that of this package, with small appends as the stage has them.
        """
        if self.template is not None:
            return release_in(self.template, self.stack.place)
        written = () if self.stack.release is None else self.stack.release.writes.get("ref", ())
        return own_facts(InlineBounds(expiring_bytes=int(6 in written), swept_bytes=int(4 in written)))


def check_upgrade(upgrade: Upgrade) -> list[Finding]:
    """All findings. Some twenty reads of AWS, and three lists of each function."""
    return [finding for check in _CHECKS for finding in check(upgrade)]


def _status(upgrade: Upgrade) -> Iterator[Finding]:
    stack = upgrade.stack
    if stack.is_deployable:
        yield _ok("stack", f"{stack.place.stack} is {stack.status}")
        return
    remedy = "wait for its deployment, or mend it (docs/how-to/upgrade.md)"
    yield Finding(check="stack", verdict=Verdict.MEND, fact=f"{stack.place.stack} is {stack.status}", remedy=remedy)


def _release(upgrade: Upgrade) -> Iterator[Finding]:
    old, new = upgrade.stack.release, upgrade.new
    if new is None:
        fact = "the app of this folder does not tell its release: it is from before 0.1.0"
        remedy = "run this in the checkout of the release that you want to deploy"
        yield Finding(
            check="release", verdict=Verdict.UNKNOWN if old is None else Verdict.MEND, fact=fact, remedy=remedy
        )
        return
    if old is None:
        fact = "the stack does not tell its release: it is from before 0.1.0"
        if new.release == RELEASES[0]:
            yield Finding(check="release", verdict=Verdict.UNKNOWN, fact=fact, remedy="its formats cannot be compared")
        else:
            yield _mend("release", fact, f"deploy {RELEASES[0]} first")
        return
    known = RELEASES if new.release in RELEASES else (*RELEASES, new.release)
    refusal = refusal_of_step(old.release, new.release, known)
    if refusal:
        yield _mend("release", f"{old.release} -> {new.release}", refusal)
        return
    yield _ok("release", f"{old.release} -> {new.release}: no release between them")
    found = [*conflicts(old, new)]
    if found:
        yield _mend("formats", "; ".join(found), _way_between(old, new))
    else:
        fact = "; ".join(format_changes(old, new)) or f"all {len(new.writes)} kinds as before"
        later = any(
            set(versions) & set(new.writes.get(kind, ())) - set(old.reads.get(kind, versions))
            for kind, versions in ON_DEMAND.items()
        )
        remedy = (
            "move no topic, and set no retention=acknowledged, topic_order or sharing, and pause mirrors of delayed "
            f"records that come here, while a function of {old.release} runs ({_EXPIRY_PART})"
            if later
            else ""
        )
        yield Finding(check="formats", verdict=Verdict.OK, fact=fact, remedy=remedy)


def _way_between(old: ReleaseFacts, new: ReleaseFacts) -> str:
    """What to deploy first, where one of both releases does not read what the other one writes."""
    without_items = replace(new, writes={**new.writes, "ref": own_facts().writes["ref"]})
    if any(conflicts(old, without_items)):
        return "deploy a release between them that reads both"
    return (
        "deploy with -c inline_bytes_max=0, and change that once no function and no embedded program of "
        f"{old.release} is left (docs/how-to/upgrade.md#{_ITEMS_PART})"
    )


def _functions(upgrade: Upgrade) -> Iterator[Finding]:
    old, new = upgrade.stack.release, upgrade.new
    if old is None or new is None:
        yield _ok("functions", f"{'the stack' if old is None else 'the app'} does not tell its routes")
        return
    moved = [*moved_routes(old, new)]
    if not moved:
        yield _ok("functions", "each route stays at its function")
        return
    remedy = ""
    if upgrade.stack.settings.get("direct"):
        remedy = "set transport='http' in clients of the transport lambda until stage and clients have the release"
    yield Finding(check="functions", verdict=Verdict.OK, fact="; ".join(moved), remedy=remedy)


def _direct(upgrade: Upgrade) -> Iterator[Finding]:
    """A stage that turns direct calls on lets callers past what policies say of API Gateway."""
    name = f"{upgrade.stack.place.prefix}{FUNCTIONS_OUTPUT}"
    was_on = name in upgrade.stack.template.get("Outputs", {})
    is_on = upgrade.template is None or name in upgrade.template.get("Outputs", {})
    if was_on or not is_on:
        yield _ok("direct calls", "as before" if was_on == is_on else "they are turned off")
        return
    fact = "they are turned on: who holds a policy of clients may invoke the functions, past API Gateway"
    remedy = "copy what your policies deny or condition on execute-api for lambda:InvokeFunction, or give -c direct=off"
    yield Finding(
        check="direct calls", verdict=Verdict.OK, fact=fact, remedy=f"{remedy} (docs/how-to/upgrade.md#{_DIRECT_PART})"
    )


def _settings(upgrade: Upgrade) -> Iterator[Finding]:
    old = upgrade.stack.settings
    if upgrade.template is None:
        known = {setting.name: setting.default for setting in STAGE.settings}
        new: Mapping[str, Any] = known
    else:
        place = upgrade.stack.place
        new = settings_in(upgrade.template, "/".join(part for part in place if part))
        changed = [f"{name}: {old[name]} -> {new[name]}" for name in new if name in old and old[name] != new[name]]
        yield _ok("changed settings", "; ".join(changed) or "none")
        if old.get("restored_tables") and not new.get("restored_tables"):
            fact = "the stage uses restored tables, and this deployment would make new, empty ones"
            yield _mend("restored tables", fact, "give the same -c restored_tables=… (docs/how-to/restore.md)")
    added, gone = (sorted(here.keys() - there.keys() - {*_UNTOLD}) for here, there in ((new, old), (old, new)))
    facts = [f"new: {', '.join(added)}"] * bool(added) + [f"gone: {', '.join(gone)}"] * bool(gone)
    remedy = "leave those that are gone out of your deployments (docs/reference/settings.md)" if gone else ""
    yield Finding(check="settings", verdict=Verdict.OK, fact="; ".join(facts) or "none new, none gone", remedy=remedy)


def _tables(upgrade: Upgrade) -> Iterator[Finding]:
    """The tables that the stage would use, by the outputs that name them: restored ones are no resources of it."""
    if upgrade.template is None:
        return
    old, new = upgrade.stack.template.get("Outputs", {}), upgrade.template.get("Outputs", {})
    moved = []
    for name in _TABLES:
        before, after = (each.get(f"{upgrade.stack.place.prefix}{name}", {}).get("Value") for each in (old, new))
        if before is not None and before != after:
            moved.append(f"{name}: {_told(before)} -> {_told(after)}")
    if moved:
        remedy = "give the -c restored_tables=… of the last deployment (docs/how-to/restore.md)"
        yield _mend("tables", f"the stage would use other tables: {'; '.join(moved)}", remedy)


def _key(upgrade: Upgrade) -> Iterator[Finding]:
    """The key of each resource that both templates have. `kms_key` itself is told without its ARN."""
    if upgrade.template is None:
        return
    before, after = _keys_in(upgrade.stack, upgrade.stack.template), _keys_in(upgrade.stack, upgrade.template)
    both = upgrade.stack.template["Resources"].keys() & upgrade.template["Resources"].keys()
    changed = sorted(each for each in both if before.get(each) != after.get(each))
    pairs = sorted({f"{before.get(each, 'none')} -> {after.get(each, 'none')}" for each in changed})
    fact = f"{len(changed)} resources: {'; '.join(pairs)}"
    types = {each: upgrade.stack.template["Resources"][each]["Type"] for each in changed}
    if any(each in before and each not in after for each in changed):
        yield _mend("key", fact, "the stage would lose its key: give the same -c kms_key=… (docs/how-to/encrypt.md)")
    elif any(each in before and types[each] == _DIRECTORY_BUCKET for each in changed):
        yield _mend("key", fact, "a directory bucket takes one key for its life: give the same -c kms_key=…")
    elif changed:
        remedy = "keep the key of before enabled: it decrypts what it has encrypted" if before else ""
        yield Finding(check="key", verdict=Verdict.OK, fact=fact, remedy=remedy)


def _keys_in(stack: DeployedStack, template: Mapping[str, Any]) -> dict[str, str]:
    """The key of each resource of the stage that has one, by its logical id."""
    return {
        logical_id: ", ".join(sorted(found))
        for logical_id, each in template["Resources"].items()
        if logical_id.startswith(stack.place.prefix) and (found := {*_keys_of(each.get("Properties", {}))})
    }


def _keys_of(value: Any) -> Iterator[str]:
    for name, each in value.items() if isinstance(value, Mapping) else enumerate(value):
        if name in _KEY_NAMES:
            yield _told(each)
        elif isinstance(each, Mapping | list):
            yield from _keys_of(each)


def _told(value: Any) -> str:
    """A value of a template: a text as it is, a reference by the id of its resource."""
    return value if isinstance(value, str) else ", ".join(references_in(value)) or json.dumps(value)


def _resources(upgrade: Upgrade) -> Iterator[Finding]:
    if upgrade.template is None:
        yield Finding(
            check="resources",
            verdict=Verdict.UNKNOWN,
            fact=f"which resources change is not known: {upgrade.why_no_template}",
            remedy="run this where you deploy, or look at `npx cdk diff`",
        )
        return
    changes = [*resource_changes(upgrade.aws, upgrade.stack.template, upgrade.template)]
    unknown = [each for each in changes if each.fate is ResourceFate.UNKNOWN]
    changes = [each for each in changes if each.fate is not ResourceFate.UNKNOWN]
    if unknown:
        fact = (
            f"AWS does not tell whether changed resources are made anew: {', '.join(sorted({e.type for e in unknown}))}"
        )
        remedy = "allow cloudformation:DescribeType, or look at `npx cdk diff`"
        verdict = Verdict.MEND if any(each.has_records for each in unknown) else Verdict.UNKNOWN
        yield Finding(check="made anew", verdict=verdict, fact=fact, remedy=remedy)
    lost = [each for each in changes if each.has_records]
    if lost:
        yield _mend(
            "records",
            "; ".join(each.text() for each in lost),
            "the stage would no longer see what is in them: keep the settings (storage_profile, restored_tables, name)",
        )
    others = [each.text() for each in changes if not each.has_records]
    shown = "; ".join(others[:_SHOWN]) + (f"; and {len(others) - _SHOWN} more" if len(others) > _SHOWN else "")
    has_logs = any(each.type == "AWS::Logs::LogGroup" for each in changes)
    remedy = "export the logs that you must keep" if has_logs else ""
    yield Finding(check="resources", verdict=Verdict.OK, fact=shown or "none is removed or made anew", remedy=remedy)


def _alarms(upgrade: Upgrade) -> Iterator[Finding]:
    stack = upgrade.stack
    names = stack.resources_of(_ALARM)
    ringing: set[str] = set()
    for start in range(0, len(names), 100):
        some = names[start : start + 100]
        told = upgrade.aws.call("cloudwatch", "describe_alarms", AlarmNames=some, StateValue="ALARM")
        ringing |= {each["AlarmName"] for each in told.get("MetricAlarms", ())}
    stopping = {
        stack.physical[logical_id]
        for each in stack.template["Resources"].values()
        if each["Type"] == "AWS::CodeDeploy::DeploymentGroup"
        for logical_id in references_in(each["Properties"].get("AlarmConfiguration", {}))
        if logical_id in stack.physical
    }
    if stops := sorted(ringing & stopping):
        remedy = "the canary would stop at once: mend it, or deploy with -c canary=off"
        yield _mend("alarms", f"{', '.join(stops)} rings", remedy)
    elif ringing:
        yield _ok("alarms", f"{', '.join(sorted(ringing)[:_SHOWN])} rings, and stops no deployment")
    else:
        yield _ok("alarms", f"none of {len(names)} rings")


def _storage(upgrade: Upgrade) -> Iterator[Finding]:
    account = upgrade.aws.call("lambda", "get_account_settings")
    used, limit = account["AccountUsage"]["TotalCodeSize"], account["AccountLimit"]["TotalCodeSize"]
    found = find_versions(upgrade.aws, upgrade.stack, KEEP)
    if not found.all:
        fact = f"the stage has no versions: a deployment replaces its functions. The account uses {used / _GB:.1f} GB"
        yield _ok("code storage", fact)
        return
    newest = {each.function: each.code_bytes for each in found.all}
    release = sum(newest.values())
    fact = (
        f"{len(found.all)} versions take {sum(each.code_bytes for each in found.all) / _MB:,.0f} MB, the account uses "
        f"{used / _GB:.1f} of {limit / _GB:.1f} GB, and a release takes {release / _MB:,.0f} MB"
    )
    remedy = ""
    if found.removable:
        freed = sum(each.code_bytes for each in found.removable) / _MB
        remedy = f"penstock upgrade --clean removes {len(found.removable)} of them, {freed:,.0f} MB"
    if limit - used >= release:
        yield Finding(check="code storage", verdict=Verdict.OK, fact=fact, remedy=remedy)
    else:
        yield _mend("code storage", fact, remedy or "remove versions of other functions, or ask AWS for more")


def _guarded(name: str, check: Callable[[Upgrade], Iterator[Finding]]) -> Callable[[Upgrade], Sequence[Finding]]:
    """The check, which is unknown where AWS refuses a read of it, most often for a missing right."""

    def guarded(upgrade: Upgrade) -> Sequence[Finding]:
        try:
            return [*check(upgrade)]
        except PenstockError as error:
            if not aws_code(error):
                raise
            return [Finding(check=name, verdict=Verdict.UNKNOWN, fact="could not be checked", remedy=error.message)]

    return guarded


def _ok(check: str, fact: str) -> Finding:
    return Finding(check=check, verdict=Verdict.OK, fact=fact)


def _mend(check: str, fact: str, remedy: str) -> Finding:
    return Finding(check=check, verdict=Verdict.MEND, fact=fact, remedy=remedy)


_CHECKS = (
    _status,
    _release,
    _functions,
    _direct,
    _settings,
    _tables,
    _key,
    _resources,
    _guarded("alarms", _alarms),
    _guarded("code storage", _storage),
)
