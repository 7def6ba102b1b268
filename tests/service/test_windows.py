"""No check may age: each write of a use case is made in a window, or its own condition repeats what it rests on.

A program that embeds the service may sleep between any two lines (design.md, section 2). `IN_A_WINDOW` names the writes
that trust what was read before. `BY_THEMSELVES` names all others, and says why each is right however late it comes. A
new write of a port belongs into one of them.
"""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

SERVICE = Path(__file__).parents[2] / "functions" / "penstock_service"
PORTS = {
    "acls": ("access", "AclStore"),
    "archive": ("segments", "ArchiveStore"),
    "audit": ("access", "AuditStore"),
    "compaction": ("log", "CompactionStore"),
    "cursors": ("runtime", "JobCursors"),
    "groups": ("groups", "GroupStore"),
    "inline": ("segments", "InlineStore"),
    "log": ("log", "LogIndex"),
    "memberships": ("groups", "MembershipStore"),
    "push": ("push", "PushStore"),
    "quotas": ("access", "QuotaStore"),
    "schedules": ("schedules", "ScheduleStore"),
    "share": ("share", "ShareStore"),
    "timers": ("timers", "TimerStore"),
    "topics": ("topics", "TopicStore"),
    "transactions": ("transactions", "TransactionStore"),
    "zone_states": ("topics", "ZoneStateStore"),
}
READS = {
    *("acls.revision", "acls.get", "acls.owners", "audit.entries", "compaction.retired", "compaction.find_merged"),
    "cursors.get",
    *(
        "groups.leases",
        "groups.lease_page",
        "groups.find_leases",
        "log.heads",
        "log.evicted_producer",
        "log.find_offsets",
        "log.pages",
    ),
    *("log.pages_before", "memberships.get_group", "memberships.find_groups", "memberships.is_registered"),
    "memberships.is_claimed",
    *("memberships.registered", "memberships.members", "memberships.find_members", "memberships.get_target"),
    *("push.get_subscription", "push.list_subscriptions", "push.has_subscriptions", "push.orphaned_states"),
    "push.subscriptions_of",
    *("push.find_lane", "push.find_deliveries", "push.states_of", "quotas.list", "quotas.claims", "share.get_group"),
    *(
        "share.hidden_groups",
        "share.list_groups",
        "share.find_states",
        "timers.get",
        "timers.waiting",
        "timers.find_told",
    ),
    *(
        "timers.due_minutes",
        "timers.switched_on_ms",
        "topics.get",
        "topics.list",
        "topics.page",
        "topics.count",
        "topics.deleted",
    ),
    *("schedules.due", "schedules.get", "schedules.list"),
    *("transactions.get", "transactions.stages", "zone_states.get", "zone_states.get_pass"),
    *(f"{store}.{name}" for store in ("archive", "inline") for name in ("zone", "layout", "earlier")),
    *(f"{store}.{name}" for store in ("archive", "inline") for name in ("get", "get_whole", "list_keys")),
    *("archive.list_folders", "inline.list_folders", "inline.get_wholes", "inline.get_expiring"),
}
IN_A_WINDOW = {
    "groups.commit": "the claim of the group, and the topic's id",
    "groups.delete_lease": "how long the group keeps its offsets",
    "groups.reset_lease": "the ends of the log, and the claim of the group",
    "log.append": "that the segment is not swept yet, and by which zone states it was put",
    "log.append_in_sequence": "as an append",
    "log.append_mirrored": "as an append",
    "log.create_head": "that the topic is there: nothing removes the heads of one that is gone for good",
    "log.jump": "that the segment is not swept yet, and where the harmed log ended",
    "log.put_offsets": "that the topic's item is not removed yet",
    "log.put_page": "that the topic's pages are not removed yet",
    "log.raise_log_start": "how long the topic keeps its records",
    "log.raise_passed": "that readers empty the topic",
    "push.change_subscription": "the claim, and states that the look would remove",
    "push.note_orphans": "the claim",
    "schedules.change": "the right to write to the topic, that the topic takes the record, and the next run's time",
    "share.change_group": "the claim",
    "timers.promote": "the time of the delivery",
    "timers.put": "the due time, which a minute in the index must not outlive, and that the partition is there",
    "topics.begin": "the claim",
    "topics.create": "the claim",
    "topics.replace": "the claim of its partitions",
    "transactions.commit": "that the segments are not swept yet, and the claims of groups",
    "transactions.move": "that the segment is not swept yet",
    "transactions.put_stage": "that the partition takes timers; the commit counts its time from the segment's",
}
BY_THEMSELVES = {
    "acls.change": "compares the revision",
    "archive.delete": "a segment that was old and unnamed: windows keep any write from naming it",
    "archive.overwrite": "not used",
    "archive.put": "nothing names it yet",
    "archive.upload": "nothing names it yet; `compaction.swap` bounds its age",
    "audit.forget": "the id is drawn for one note",
    "audit.put": "the id is drawn for one note",
    "compaction.acquire": "compares the epoch and the deadline",
    "compaction.move_tail": "compares the tail and the epoch; `move_tail` looks at the time of its segment",
    "compaction.save": "compares the epoch",
    "compaction.swap": "compares the pages and the epoch; `_swap` looks at the time of its segment",
    "cursors.clear": "a job begins anew: it does work twice",
    "cursors.put": "a job goes back: it does work twice",
    "groups.release_lease": "compares the epoch of the lease",
    "groups.take_lease": "compares the epoch of the lease; the first one is followed by `keep_listed`",
    "inline.delete": "as `archive.delete`",
    "inline.overwrite": "not used",
    "inline.put": "nothing names it yet",
    "inline.put_expiring": "nothing names it yet; `put_segment` puts it in the window of its append",
    "log.arm": "compares the next offset",
    "log.arm_push": "compares the next offset",
    "log.delete_head": "a topic that was deleted never comes back under its id",
    "log.delete_offsets": "a topic that was deleted, or becomes a mirror anew, is told them again",
    "log.delete_page": "below a log start, which never goes back",
    "log.mark_stored": "a copy was there, and zones that lose some come back by what they hold (docs/protocol/zones)",
    "log.move_to_layout": "compares the layout",
    "log.move": "asks that the log has not ended, and that the move was not given up",
    "log.name_log": "asks that the head has no name yet",
    "log.promote": "compares the name of the mirror",
    "log.note_log_start": "stays true for ever",
    "log.count_reader": "rests on nothing: it tells of a write that was made",
    "log.put_evicted": "an older state never replaces a newer one",
    "log.remove_producers": "compares the entries; `shorten_heads` has a window for what comes before it",
    "log.replace_page": "compares the page",
    "log.reopen": "compares the number of the move; its topic is altered by nobody until all heads are open",
    "log.return_to": "as `reopen`",
    "log.shorten_tail": "compares the tail's base",
    "memberships.change_group": "compares the version; `create_group` has a window for the claim",
    "memberships.delete_group": "compares the version",
    "memberships.put_member": "compares process, sequence and deadline",
    "memberships.put_target": "under an id of its own: no group names it until its version is compared",
    "memberships.register": "`list_group` has a window; `keep_listed` and `unlist_group` look after a write",
    "memberships.remove_member": "compares process, sequence and deadline",
    "memberships.remove_targets": "of epochs that are over",
    "memberships.touch_member": "compares session, process and sequence",
    "memberships.unregister": "what makes a group lists it afterwards",
    "push.delete_states": "of a subscription that is gone: its id is never used again",
    "push.delete_subscription": "compares the version",
    "push.forget_orphans": "of a subscription whose states are gone: a creation that slept is refused",
    "push.put_delivery": "compares the version",
    "push.put_lane": "compares the version",
    "quotas.begin": "compares the bucket",
    "quotas.charge": "compares rate and beginning; a charge that comes late has less credit, not more",
    "quotas.delete": "the caller's wish, or compares who has set it last",
    "quotas.drop_claim": "compares the time of the claim; a creation that slept is refused",
    "quotas.forget_claim": "of an id that is gone",
    "quotas.put": "the caller's wish, or compares who has set it last",
    "quotas.put_claim": "counts before anything is made; the creation has a window",
    "schedules.delete": "compares the id",
    "schedules.note": "compares id, version and next run",
    "share.begin_state": "compares the group",
    "share.begin_states": "compares the group",
    "share.create_state": "of a group that is not there yet: `change_group` has a window",
    "share.delete_group": "compares the version",
    "share.delete_state": "of a group or topic that is gone: its id is never used again",
    "share.forget_group": "as `delete_state`",
    "share.reset": "compares the generation",
    "share.update": "compares what it takes away",
    "timers.cancel": "compares the state of the timer",
    "timers.delete": "of a partition or topic that is gone, or a mirror that nothing pushes to yet",
    "timers.forget_minute": "a minute that is over and empty stays so: puts have a window",
    "timers.note_told": "stays true: a push names the timer from then on",
    "timers.note_switched_on": "stays true for ever",
    "timers.reserve": "an upper bound; the put has a window",
    "topics.delete": "compares id and partitions",
    "topics.end_raise": "compares id and note",
    "topics.forget_deleted": "all that the note led to is gone, and stays so: heads are made in a window",
    "topics.give_up": "compares the state of the creation",
    "topics.note_heads_removed": "heads are made in a window, so none comes back",
    "topics.open_generation": "compares the layout",
    "topics.retire": "compares layout and partitions; puts of timers have a window, and a drain lasts an hour",
    "transactions.begin_epoch": "compares producer id and epoch",
    "transactions.renew": "compares the epoch, and puts an end off",
    "transactions.release": "the operator's wish",
    "zone_states.change": "compares the version",
    "zone_states.save_pass": "compares how often it was saved",
}
# Functions that make a write of `IN_A_WINDOW` for reasons of their own.
EXCUSED = {
    ("groups/commit_offsets.py", "_commit_as_owner"): "the token of the lease is compared",
    ("groups/delete_group.py", "delete_group"): "the caller's wish, and the lease is compared",
    ("groups/delete_offsets.py", "_delete"): "the caller's wish, and the lease is compared",
    ("mirror/move_topic.py", "_noted"): "compares the topic, and creates no partition",
    ("mirror/move_topic.py", "_ending"): "compares the topic, and creates no partition",
    ("mirror/move_topic.py", "reopen_topic"): "compares the topic, and creates no partition",
    ("mirror/move_topic.py", "return_topic"): "compares the topic, and creates no partition",
    ("mirror/promote_topic.py", "_replaced"): "compares the topic, and creates no partition",
    ("push/admin/pause_subscription.py", "_switched"): "compares the version, and creates nothing",
    ("push/subscriptions.py", "ask_again"): "compares the version, and creates nothing",
    ("push/parallel/parallel_group.py", "put_parallel_group"): "`put_subscription` has the window of its creation",
    ("retention/remove_topic.py", "remove_states_of_topic"): "compares the version, and creates nothing",
    ("share/dead_letters/redrive.py", "_hidden_group"): "the group of redrives has no claim",
    ("topics/alter_topic.py", "truncate"): "the operator's wish: records that it names stay as old",
    ("transactions/commit_transaction.py", "commit_transaction"): "`_prepared` looks last of all, right before it",
}

Function = ast.FunctionDef


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SERVICE.rglob("*.py")):
        name = path.relative_to(SERVICE).as_posix()
        if not name.startswith(("adapters/", "ports/")):
            yield name, ast.parse(path.read_text())


def functions(module: ast.Module) -> Iterator[Function]:
    """The functions of the module and the methods of its classes, with those inside of them."""
    for node in module.body:
        for each in [node, *(node.body if isinstance(node, ast.ClassDef) else [])]:
            if isinstance(each, Function):
                yield each


def port_uses(node: ast.AST) -> Iterator[tuple[str, int]]:
    """`port.method` of each store that the code names, and the line."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute):
            of = each.value.attr if isinstance(each.value, ast.Attribute) else getattr(each.value, "id", None)
            if of in PORTS:
                yield f"{of}.{each.attr}", each.lineno


def checks(function: Function) -> list[int]:
    """The lines on which the function looks at a window, or lets a function do so that takes one."""
    return [
        each.lineno
        for each in ast.walk(function)
        if isinstance(each, ast.Attribute) and each.attr in ("check", "age_ms") and "window" in ast.unparse(each.value)
    ]


def test_each_write_of_a_port_is_made_in_a_window_or_is_argued() -> None:
    methods = set()
    for store, (module, protocol) in PORTS.items():
        port = getattr(importlib.import_module(f"penstock_service.ports.{module}"), protocol)
        methods |= {f"{store}.{name}" for base in port.__mro__ for name in vars(base) if not name.startswith("_")}
    known = READS | IN_A_WINDOW.keys() | BY_THEMSELVES.keys()
    assert methods == known
    assert not (IN_A_WINDOW.keys() & BY_THEMSELVES.keys())


def test_no_write_that_trusts_a_read_comes_without_a_look_at_its_window() -> None:
    missing, excused = [], set()
    for name, module in modules():
        for function in functions(module):
            for use, line in port_uses(function):
                if use not in IN_A_WINDOW or any(at <= line for at in checks(function)):
                    continue
                if (name, function.name) in EXCUSED:
                    excused.add((name, function.name))
                else:
                    missing.append(f"{name}:{line} {use} trusts {IN_A_WINDOW[use]}")
    assert missing == []
    assert excused == EXCUSED.keys()


def test_window_opens_before_its_function_reads_anything() -> None:
    """A window that opens behind a read does not see the sleep in between."""
    late = []
    for name, module in modules():
        for function in functions(module):
            opened = [
                each.lineno
                for each in ast.walk(function)
                if isinstance(each, ast.Attribute) and ast.unparse(each) == "UpdateWindow.open"
            ]
            reads = [line for use, line in port_uses(function) if use in READS]
            if opened and reads and min(reads) < min(opened):
                late.append(f"{name}:{min(opened)} {function.name}")
    assert late == []
